"""Where a generation may be named: in isa/, machines/, its own kernels and its simulator unit (decision 0006)."""

from __future__ import annotations

import re
from pathlib import Path

from wordline.isa import GENERATIONS
from wordline.machines import list_machines

SOURCES = Path(__file__).resolve().parents[1] / "src" / "wordline"
FOLDERS = ("artifact", "compiler", "engine", "frontend", "graph", "numerics", "runtime", "sim")


def test_generic_code_names_no_generation() -> None:
    names = re.compile("|".join(name.replace("-", "[-_ ]?") for name in GENERATIONS), re.IGNORECASE)
    own = {generation.replace("-", "_") for generation in GENERATIONS}
    machines = re.compile("|".join(sorted(list_machines(), key=len, reverse=True)))  # users name those
    found = []
    for folder in FOLDERS:
        for path in sorted((SOURCES / folder).rglob("*.py")):
            if own & set(path.relative_to(SOURCES).parts):
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if names.search(machines.sub("", line)):
                    found.append(f"{path.relative_to(SOURCES)}:{number}")
    assert not found
