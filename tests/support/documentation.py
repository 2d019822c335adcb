"""The commands and transcripts of README.md and docs/, as blocks that can be run, compared and written again.

A page is read from top to bottom, as a reader would type it, in one folder that looks like the root of the repository
and also holds ``SmolLM2.wl``, the compiled default model. The language of a fence says what is in it:

- ``console``: commands after ``$``, each with what it prints. Nothing below a command means: not shown.
- ``sh``: commands only, one a line.
- ``python``: a program. ``pycon``: a session, for doctest.
- ``usage``: synopses of subcommands; their options have to exist.
- ``text``, ``toml``, ``mlir``: read only, and must not contain commands.

``<!-- slow -->`` on the line before a fence keeps it for the slow tests. A command has to end with status 0; if the
transcript shows an error (``error[code]``), with status 2. What is compared is standard output, then standard error
without lines of progress, as on a terminal, where progress leaves nothing behind.

There is no list of commands that are left out. Only ``make`` is not run for real but with --dry-run: its targets are
what runs these tests and the rest of continuous integration.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARTIFACT = "SmolLM2.wl"
WIDTH = 160
"""Longer lines of text are folded in the pages, at a space. Rows of tables are not."""

RUN = ("console", "sh", "python", "pycon")
READ = ("usage", "text", "toml", "mlir")
COMMAND = re.compile(r"^(?:\$ |(?:\.venv/bin/)?(?:wordline|python3?|pip|pytest) |make [a-z]|git )")

VOLATILE = (
    re.compile(r"(?<=host time, measured: ).*"),  # wall-clock time
    re.compile(r"(?<=compiled in )[\d.]+ s"),  # wall-clock time
)
"""What a transcript may show differently from one run to the next. Everything else is compared exactly, except for the
spaces and line ends between words."""

_FENCE = re.compile(r"^```(.*)$")
_PROGRESS = re.compile(r"^\[ *[\d.]+ s\] ")
_SLOW = "<!-- slow -->"


class PageError(AssertionError):
    """A page says something that is not so; the text names page, line and command."""


@dataclass
class Step:
    """A command (or a whole program) and the lines printed below it in the page, None where none are shown."""

    line: int
    text: str
    shown: list[str] | None = None


@dataclass
class Block:
    """A fence: line of its first content line (from 1), its language, its content, and what there is to run."""

    line: int
    language: str
    slow: bool
    content: list[str] = field(default_factory=list)

    def steps(self) -> list[Step]:
        """The commands in order. A line that ends with a backslash continues in the next."""
        if self.language in ("python", "pycon"):
            return [Step(self.line, "\n".join(self.content) + "\n")]
        steps: list[Step] = []
        console = self.language == "console"
        more = False
        for number, line in enumerate(self.content, self.line):
            if more:
                steps[-1].text += "\n" + line
            elif not console and line.strip():
                steps.append(Step(number, line))
            elif line.startswith("$ "):
                steps.append(Step(number, line[2:]))
            elif console and steps:
                steps[-1].shown = [*(steps[-1].shown or []), line]
                continue
            elif console:
                raise ValueError(f"line {number}: a console block begins with a command after $")
            more = bool(steps) and line.endswith("\\")
        for step in steps:
            if step.shown is not None and not any(step.shown):
                step.shown = None
        return steps


def pages() -> list[Path]:
    """README.md and every page of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> Iterator[Block]:
    """The fences of a page."""
    block: Block | None = None
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if fence is None:
            if block is not None:
                block.content.append(line)
        elif block is None:
            block = Block(number + 1, fence[1].strip(), number > 1 and lines[number - 2].strip() == _SLOW)
        else:
            yield block
            block = None
    if block is not None:
        raise ValueError(f"line {block.line - 1}: the fence does not end")


def unrun(text: str) -> list[str]:
    """What looks like a command to type and would not be run: in indented blocks, in fences that are only read, and in
    fences of unknown languages. A line each."""
    found = []
    outside = text.splitlines()
    for block in blocks(text):
        if block.language not in (*RUN, *READ):
            found.append(f"line {block.line - 1}: a fence needs a language of {', '.join((*RUN, *READ))}")
        for number, line in enumerate(block.content, block.line):
            outside[number - 1] = ""
            if block.language in READ and block.language != "usage" and COMMAND.match(line.lstrip()):
                found.append(f"line {number}: nothing runs {line.strip()!r}; make the fence console or sh")
    for number, line in enumerate(outside, 1):
        if line.startswith("    ") and COMMAND.match(line.strip()):
            found.append(f"line {number}: nothing runs {line.strip()!r}; put it into a console or sh fence")
    return found


class Desk:
    """A folder to follow a page in, and the environment for it."""

    def __init__(self, folder: Path, cache: Path, artifact: Path | None) -> None:
        """``cache``: for WORDLINE_CACHE. ``artifact``: what SmolLM2.wl is, None if the page makes it itself."""
        self.folder = folder
        for entry in ROOT.iterdir():
            if entry.name in ("docs", "README.md"):  # commands may write these
                (shutil.copytree if entry.is_dir() else shutil.copyfile)(entry, folder / entry.name)
            elif entry.name != "build" and (not entry.name.startswith(".") or entry.name in (".ci", ".gitignore")):
                (folder / entry.name).symlink_to(entry)
        (folder / ".venv").symlink_to(sys.prefix)
        if artifact is not None:
            (folder / ARTIFACT).symlink_to(artifact)
        self.environment = {
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "MAKEFLAGS": "--dry-run",
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join((str(Path(sys.prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin")),
            "WORDLINE_CACHE": str(cache),
        }

    def run(self, block: Block, step: Step) -> list[str]:
        """Run a step and return the lines it printed. Raises :class:`PageError` for an unexpected exit status."""
        file = self.folder / f"line-{step.line}"
        command = ["bash", "-c", step.text]
        if block.language in ("python", "pycon"):
            file.write_text(step.text, encoding="utf-8")
            command = [sys.executable, *(["-m", "doctest"] if block.language == "pycon" else []), str(file)]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=1800,
        )
        expected = 2 if step.shown and step.shown[0].startswith("error[") else 0
        if done.returncode != expected:
            raise PageError(
                f"{step.text!r} ended with status {done.returncode}, not {expected}:\n{done.stdout}{done.stderr}"
            )
        errors = [line for line in done.stderr.splitlines() if not _PROGRESS.match(line)]
        return done.stdout.splitlines() + errors


def comparable(lines: list[str]) -> list[str]:
    """The words of an output, without what may differ from run to run."""
    text = "\n".join(lines)
    for pattern in VOLATILE:
        text = pattern.sub("*", text)
    return text.split()


def folded(lines: list[str]) -> list[str]:
    """Lines as a page shows them: no spaces at the end, text folded at ``WIDTH``."""
    shown: list[str] = []
    for line in lines:
        line = line.rstrip()
        if len(line) <= WIDTH or "  " in line.strip():
            shown.append(line)
        else:
            shown += textwrap.wrap(line, WIDTH, break_long_words=False, break_on_hyphens=False)
    while shown and not shown[-1]:
        shown.pop()
    return shown


def follow(page: str, desk: Desk, *, slow: bool) -> Iterator[tuple[Block, Step, list[str]]]:
    """Run a page from top to bottom, slow blocks only if ``slow``, and yield each step with what it printed."""
    for block in blocks(page):
        if block.language in RUN and (slow or not block.slow):
            for step in block.steps():
                yield block, step, desk.run(block, step)


def makes_artifact(page: str, *, slow: bool) -> bool:
    """Whether a block that is run makes SmolLM2.wl, so that the desk must not have it."""
    return any(
        f"-o {ARTIFACT}" in line
        for block in blocks(page)
        if block.language in RUN and (slow or not block.slow)
        for line in block.content
    )


def refreshed(page: str, desk: Desk, *, slow: bool) -> str:
    """The page with its transcripts as printed today, those of slow blocks only if ``slow``.

    A transcript that differs only in what may differ stays as it is.
    """
    lines = page.splitlines()
    changes: list[tuple[Step, list[str]]] = []
    for _, step, printed in follow(page, desk, slow=slow):
        if step.shown is not None and comparable(printed) != comparable(step.shown):
            changes.append((step, folded(printed)))
    for step, printed in reversed(changes):
        assert step.shown is not None
        first = step.line + step.text.count("\n")  # index of the first line below the command
        gap = [""] * (len(step.shown) - len(folded(step.shown)))  # the empty line before a next command stays
        lines[first : first + len(step.shown)] = printed + gap
    return "\n".join(lines) + "\n"
