"""``--search``: the option, and what a search found, as a table and as plain data."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from wordline import knobs
from wordline.cli.output import table

if TYPE_CHECKING:
    from wordline.artifact import Chosen, SearchedStep
    from wordline.compiler.tuning import Tuning

FOLDER = "winners"
"""Of the cache folder: the times that searches have measured."""


def add_search_option(parser: argparse.ArgumentParser) -> None:
    """``--search``; read it with :func:`tuning_of`."""
    parser.add_argument(
        "--search",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="search the compiler's open choices on the cycle model for so long; Ctrl-C ends the search with the best "
        "so far (default: 0, the cost model's first choices)",
    )


def _seconds(text: str) -> float:
    """Argument type: a number of at least 0."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def tuning_of(seconds: float, progress: Callable[[str], None], contexts: Sequence[int] = ()) -> Tuning | None:
    """The search that ``--search`` asks for, with times kept in the cache; None for 0 seconds."""
    if not seconds:
        return None
    from wordline.compiler.tuning import Tuning
    from wordline.compiler.winners import Winners

    return Tuning(seconds, tuple(contexts), Winners(knobs.cache_dir() / FOLDER, progress))


def search_document(choices: Sequence[Chosen], step: SearchedStep | None) -> dict[str, Any]:
    """What was chosen and what the search found (None without one), as plain data; times in cycles."""
    return {
        "search": None if step is None else dataclasses.asdict(step),
        "choices": [dataclasses.asdict(chosen) for chosen in choices],
    }


def choice_tables(choices: Sequence[Chosen], step: SearchedStep | None) -> list[Any]:
    """One line for the operations of each shape; how far from its limit each is, if there was a search."""
    columns = ["operation", "count", "shape", "chosen"]
    if step is None:
        rows = [[c.operation, str(c.count), c.shape, c.choice] for c in choices]
        return [table("choices: the cost model's", columns, rows, left=4)]
    columns += ["fastest alone", "timed", "cycles alone", "first choice", "of limit"]
    return [table(_title(step), columns, [_row(c) for c in choices], left=5)]


def _title(step: SearchedStep) -> str:
    contexts = ", ".join(map(str, step.contexts))
    change = 100 * (step.cycles / step.first_cycles - 1)
    return (
        f"choices: searched; the step at context {contexts} takes {step.cycles:,} cycles, "
        f"{step.first_cycles:,} with the cost model's first choices ({change:+.2f} %)"
    )


def _row(c: Chosen) -> list[str]:
    head = [c.operation, str(c.count), c.shape, c.choice]
    s = c.search
    if s is None:
        return [*head, "", "", "", "", ""]
    note = "" if s.dropped is None else f" ({s.dropped})"
    return [
        *head,
        ("the first choice" if s.best == s.first else s.best) + note,
        f"{s.timed} of {s.candidates}",
        f"{s.cycles:,}",
        f"{s.first_cycles:,}",
        f"{100 * s.bound_cycles / s.cycles:.1f} % of {s.bound}",
    ]
