"""Access to the reference figures under tests/reference (their sources: tests/reference/README.md)."""

from __future__ import annotations

import csv
from pathlib import Path

REFERENCE = Path(__file__).resolve().parent.parent / "reference"


def reference_rows(table: str) -> list[dict[str, str]]:
    """The rows of a CSV table, for example ``gddr6-aim/micro_cycles.csv``, as texts by column name."""
    with (REFERENCE / table).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
