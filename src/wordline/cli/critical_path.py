"""How commands print a critical path, and write it as a file for Perfetto."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordline.cli.output import table, write_text

if TYPE_CHECKING:
    from wordline.machines import Machine
    from wordline.sim.critical_path import CriticalPath, PathPart, Share
    from wordline.sim.perfetto import Label

SHOWN_RULES = 24
SHOWN_STRETCHES = 40
SHOWN_WAITS = 5


def add_perfetto_option(parser: argparse.ArgumentParser) -> None:
    """``--perfetto``."""
    parser.add_argument(
        "--perfetto",
        type=Path,
        metavar="FILE",
        help="write what happened as a trace-event file, for ui.perfetto.dev or chrome://tracing",
    )


def write_perfetto(
    file: Path, path: CriticalPath, machine: Machine, label: Label, title: str, channels: set[int] | None = None
) -> None:
    """Write a file, complete or not at all. Raises ``WordlineError("bad-output")`` for a folder."""
    from wordline.sim.perfetto import document_lines

    write_text(file, "".join(document_lines(path, machine, label, title, channels)))


def path_document(path: CriticalPath, machine: Machine, label: Label) -> dict[str, Any]:
    """The path as plain data; ``label`` says what is known of an instruction."""
    from wordline.sim.critical_path import terms

    kinds = path.shares(lambda part: part.kind)
    by_rule = path.shares(lambda part: (part.rule, part.command, part.kind))
    return {
        "cycles": path.cycles,
        "kinds": {kind: share.cycles for kind, share in kinds.items()},
        "constraints": [
            {
                "constraint": rule,
                "command": command,
                "kind": kind,
                "cycles": share.cycles,
                "times": share.times,
                "terms": terms(rule),
            }
            for (rule, command, kind), share in by_rule.items()
        ],
        "constants": path.constants(machine),
        "parts": [
            {
                "begin": part.begin,
                "end": part.end,
                "cycles": part.cycles,
                "constraint": part.rule,
                "times": part.times,
                "kind": part.kind,
                "command": part.command,
                "where": path.lanes[part.lane].name,
                **label(part.lane, part.instruction),
            }
            for part in path.parts
        ],
    }


def path_tables(path: CriticalPath, what: str, heading: Callable[[PathPart], str], *between: Any) -> list[Any]:
    """The path as tables: by constraint, and in order of time, where successive parts of one ``heading`` are one row.

    Args:
        path: the path.
        what: the name of the last table's first column.
        heading: where a part belongs, for people.
        between: tables to show between the two.
    """
    others = [part for made in between for part in ("", made)]
    return ["", _rule_table(path), *others, "", _time_table(path, what, heading)]


def _rule_table(path: CriticalPath) -> Any:
    from wordline.sim.critical_path import interval_text

    by_rule = list(path.shares(lambda part: (part.kind, part.rule, part.command)).items())
    rows = [
        [kind, short(rule), command, interval_text(rule), *_figures(share, path.cycles), f"{share.times:,}"]
        for (kind, rule, command), share in by_rule[:SHOWN_RULES]
    ]
    if hidden := by_rule[SHOWN_RULES:]:
        rest = sum(share.cycles for _, share in hidden)
        rows.append([f"{len(hidden)} others", "", "", "", f"{rest:,}", percent(rest, path.cycles), ""])
    rows.append(["total", "", "", "", f"{path.cycles:,}", percent(path.cycles, path.cycles), ""])
    columns = ["kind", "constraint", "command", "stands for", "cycles", "of all", "times"]
    return table("critical path: what was waited for", columns, rows, left=4)


def _figures(share: Share, cycles: int) -> list[str]:
    return [f"{share.cycles:,}", percent(share.cycles, cycles)]


def percent(part: int, whole: int) -> str:
    """A share in percent."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _time_table(path: CriticalPath, what: str, heading: Callable[[PathPart], str]) -> Any:
    from wordline.sim.critical_path import shares

    rows: list[list[str]] = []
    for head, together in groupby(path.parts, key=heading):
        parts = list(together)
        waits = [f"{short(rule)} {share.cycles:,}" for rule, share in shares(parts, lambda part: part.rule).items()]
        if len(waits) > SHOWN_WAITS:
            waits[SHOWN_WAITS:] = [f"{len(waits) - SHOWN_WAITS} others"]
        length = sum(part.cycles for part in parts)
        rows.append([head, ", ".join(waits), f"{parts[0].begin:,}", f"{length:,}"])
    hidden = len(rows) - SHOWN_STRETCHES
    if hidden > 0:
        rows[SHOWN_STRETCHES:] = [[f"... {hidden:,} more (all of it: --json)", "", "", ""]]
    return table("critical path: in order of time", [what, "waited for", "from cycle", "cycles"], rows, left=2)


def short(rule: str) -> str:
    """A rule without its section where that is not needed."""
    return rule.removeprefix("timing.")
