"""Check the running text of the documentation: relative links lead to files and headings, and the `make` targets,
`wordline` subcommands and `python -m` modules that it names exist. What fences say is run by tests/docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_MAKE = re.compile(r"`make ([a-z][a-z-]*)")
_COMMAND = re.compile(r"`(?:\.venv/bin/)?wordline ([a-z][a-z-]*)")
_MODULE = re.compile(r"`(?:\.venv/bin/)?python\s+-m\s+((?:wordline|benchmarks)[\w.]*)")


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as the web sites that show Markdown make them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def is_module(name: str) -> bool:
    """Whether a module of this tree exists that can be run."""
    place = (ROOT if name.startswith("benchmarks") else ROOT / "src") / name.replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()


def problems(page: Path, targets: set[str], commands: set[str]) -> list[str]:
    """What is wrong with one page, a line each."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    found = []
    for link, anchor in _LINK.findall(text):
        target = page.parent / link if link else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists():
            found.append(f"link to {link}: no such file")
        elif anchor and anchor not in anchors(_FENCE.sub("", target.read_text(encoding="utf-8"))):
            found.append(f"link to {link}#{anchor}: no such heading")
    found += [f"make {name}: no such target" for name in _MAKE.findall(text) if name not in targets]
    found += [f"wordline {name}: no such subcommand" for name in _COMMAND.findall(text) if name not in commands]
    found += [f"python -m {name}: no such module" for name in _MODULE.findall(text) if not is_module(name)]
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
