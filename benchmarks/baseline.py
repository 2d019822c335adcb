"""The committed cycles of the suite, and what changed against them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wordline.files import write_text

BASELINE = Path(__file__).with_name("baseline.json")


@dataclass(frozen=True)
class Change:
    """A case whose cycles differ; None on the side where it does not exist."""

    name: str
    before: int | None
    after: int | None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.name}: new, {self.after} cycles"
        if self.after is None:
            return f"{self.name}: gone, was {self.before} cycles"
        return f"{self.name}: {self.before} -> {self.after} cycles ({percent(self.before, self.after)})"


def percent(before: int, after: int) -> str:
    """A change in percent, with its sign."""
    return f"{100 * (after - before) / before:+.2f} %"


def read() -> dict[str, int]:
    """Cycles by name of case; empty if there is no baseline yet."""
    if not BASELINE.exists():
        return {}
    return {str(name): int(cycles) for name, cycles in json.loads(BASELINE.read_text(encoding="utf-8")).items()}


def write(cycles: Mapping[str, int]) -> None:
    """Replace the baseline."""
    write_text(BASELINE, json.dumps(dict(cycles), indent=2) + "\n")


def changes(before: Mapping[str, int], after: Mapping[str, int]) -> list[Change]:
    """Every case whose cycles differ, new and gone ones included."""
    names = list(dict.fromkeys([*after, *before]))
    return [Change(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]
