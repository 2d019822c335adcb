"""Check the documentation: relative links lead to files, and the `make` targets and `wordline` subcommands exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
_MAKE = re.compile(r"(?:^\s{4,}|`)make ([a-z][a-z-]*)", re.MULTILINE)
_COMMAND = re.compile(r"(?:^\s{4,}|`)(?:\.venv/bin/)?wordline ([a-z][a-z-]*)", re.MULTILINE)


def problems(page: Path, targets: set[str], commands: set[str]) -> list[str]:
    """What is wrong with one page, a line each."""
    text = page.read_text(encoding="utf-8")
    found = []
    for link in _LINK.findall(text):
        if "://" not in link and not link.startswith("mailto:") and not (page.parent / link).exists():
            found.append(f"link to {link}: no such file")
    found += [f"make {name}: no such target" for name in _MAKE.findall(text) if name not in targets]
    found += [f"wordline {name}: no such subcommand" for name in _COMMAND.findall(text) if name not in commands]
    return [f"{page.relative_to(ROOT)}: {problem}" for problem in found]


def main() -> int:
    from wordline.cli import COMMANDS

    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "tests").rglob("*.md"))]
    found = [problem for page in pages for problem in problems(page, targets, {command.NAME for command in COMMANDS})]
    for problem in found:
        print(problem)
    print(f"{len(pages)} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
