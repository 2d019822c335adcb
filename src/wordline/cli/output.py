"""What subcommands print: JSON for programs, tables for people."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordline import files
from wordline.errors import WordlineError

if TYPE_CHECKING:
    from rich.table import Table


def print_json(value: Any) -> None:
    """Print one JSON document on standard output, in ASCII unless it takes all of Unicode.

    A path that is not text is printed with its bytes as surrogates, which JSON can write.
    """
    unicode = (sys.stdout.encoding or "").lower().replace("_", "-") in ("utf-8", "utf8")
    print(json.dumps(value, indent=2, ensure_ascii=not unicode))


def print_any_text() -> None:
    """Let standard output escape the characters that its encoding lacks, and give streams that are closed to nobody."""
    # Python has None for them, and the next file to be opened would take their number.
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """A table whose first ``left`` columns are texts and the others numbers, flush right."""
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        made.add_column(column, justify="left" if index < left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made


def print_tables(*parts: Any) -> None:
    """Print tables and lines of text one under another, as wide as they need when standard output is not a terminal."""
    from rich.console import Console

    class Tables(Console):
        def on_broken_pipe(self) -> None:
            """A reader that has left is for the command line to report, not for rich to exit on."""
            raise  # the BrokenPipeError that is being handled

    console = Tables(highlight=False, markup=False)
    if not console.is_terminal:
        # A pipe has no width, and rich would cut the cells of a table that is wider than what it assumes.
        console = Tables(highlight=False, markup=False, width=10_000)
    for part in parts:
        console.print(part)


def write_text(path: Path, text: str) -> None:
    """Write a file, complete or not at all. Raises ``WordlineError("bad-output")`` for a folder."""
    if path.is_dir():
        raise WordlineError("bad-output", "the output is a folder", where=str(path), remedy="name a file")
    files.write_text(path, text)
