"""``python -m benchmarks`` (``make bench``): the deterministic cycle table, compared with the committed baseline."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks import baseline
from benchmarks.report import page
from benchmarks.suite import CASES, TITLES, Entry, changed, key, machine_of, measure
from wordline.cli.output import print_json, print_tables, table
from wordline.cli.progress import progress
from wordline.errors import WordlineError
from wordline.files import write_text

LIMITS = ("L0", "L2", "L3")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and compare.

    The exit code is 1 if any case differs from the baseline and that is not accepted, 2 for wrong usage.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name contains TEXT")
    parser.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="change a field of every machine, as a what-if: nothing is compared with the baseline",
    )
    parser.add_argument("--accept", action="store_true", help="write the measured cycles into the baseline")
    parser.add_argument("--html", metavar="FILE", type=Path, help="write a page with plots")
    parser.add_argument("--json", action="store_true", help="print one JSON document, with the cycles by cause")
    args = parser.parse_args(arguments)
    if args.set and args.accept:
        parser.error("a what-if is no baseline: give --set or --accept")
    cases = [changed(case, args.set) for case in CASES if args.only in key(case)]
    if not cases:
        parser.error(f"no case contains {args.only!r}; there are: {', '.join(map(key, CASES))}")
    entries, failures = [], []
    with progress() as report:
        for case in cases:
            report(key(case))
            try:
                entries.append(measure(case))
            except WordlineError as error:
                if not args.set:
                    raise
                failures.append(f"{key(case)}: {error.what}")
    names = {key(case) for case in cases}
    all_known = {} if args.set else baseline.read()
    # A case that the suite no longer has is a change of the whole suite only.
    known = {name: cycles for name, cycles in all_known.items() if name in names or not args.only}
    cycles = {key(entry.case): entry.cycles for entry in entries}
    changes = [] if args.set else baseline.changes(known, cycles)
    if args.html is not None:
        write_text(args.html, page(entries))
    if args.json:
        print_json(
            {
                "failures": failures,
                "entries": [
                    {**entry.document(machine_of(entry.case.machine)), "baseline_cycles": known.get(key(entry.case))}
                    for entry in entries
                ],
                "changes": [
                    {"name": change.name, "before": change.before, "after": change.after} for change in changes
                ],
            }
        )
    else:
        print_tables(*_tables(entries, known))
        print_tables(*(failures if args.set else _verdict(changes, args.accept)))
    if args.accept:
        baseline.write({**all_known, **cycles} if args.only else cycles)
        return 0
    return 1 if changes else 0


def _tables(entries: Iterable[Entry], known: dict[str, int]) -> list[Any]:
    parts: list[Any] = ["device time, simulated; percent of a limit = the limit's time / the time taken", ""]
    for (kind, machine), group in groupby(entries, lambda entry: (entry.case.kind, entry.case.machine)):
        rows = [_row(entry, known.get(key(entry.case))) for entry in group]
        columns = ["case", "cycles", "µs", *(f"% of {name}" for name in LIMITS), "% of bound", "change"]
        parts += [table(f"{TITLES[kind]}, {machine}", columns, rows), ""]
    return parts


def _row(entry: Entry, before: int | None) -> list[str]:
    shares = [entry.percent(name) for name in LIMITS]
    if before is None:
        change = "new"
    elif before == entry.cycles:
        change = "="
    else:
        change = baseline.percent(before, entry.cycles)
    return [
        entry.case.what,
        f"{entry.cycles:,}",
        f"{entry.ns / 1e3:,.2f}",
        *("" if share is None else f"{share:.1f}" for share in shares),
        f"{entry.percent_of_bound:.1f}",
        change,
    ]


def _verdict(changes: list[baseline.Change], accepted: bool) -> list[str]:
    if not changes:
        return ["every case takes the cycles of the baseline"]
    last = "accepted" if accepted else "if this is meant: make bench ARGS=--accept, and say why in the commit"
    return [f"{len(changes)} differ from the baseline:", *(f"  {change}" for change in changes), last]


if __name__ == "__main__":
    sys.exit(main())
