"""``python -m benchmarks.search``: what the search finds for the matrix-vector products of the cycle suite.

Every legal candidate is timed and nothing is stored, so the table is exact.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from benchmarks.suite import CASES, Gemv, changed, key, machine_of
from wordline.cli.output import print_json, print_tables, table
from wordline.cli.progress import progress
from wordline.compiler.choices import GemvShape
from wordline.compiler.search import Budget, Found, search
from wordline.compiler.spaces import GemvSpace


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and print. The exit code is 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="products whose name contains TEXT")
    parser.add_argument(
        "--set", metavar="PATH=VALUE", action="append", default=[], help="change a field of every machine, as a what-if"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(arguments)
    products = [case for case in CASES if isinstance(case, Gemv) and args.only in key(case)]
    if not products:
        parser.error(f"no product contains {args.only!r}")
    cases = [case for case in (changed(product, args.set) for product in products) if isinstance(case, Gemv)]
    with progress() as report:
        results = [(case, exhaustive(case, report)) for case in cases]
    if args.json:
        print_json([_document(case, found) for case, found in results])
    else:
        print_tables(*_tables(results))
    return 0


def exhaustive(case: Gemv, report: Any) -> Found:
    """Every candidate of a product, timed."""
    machine = machine_of(case.machine)
    space = GemvSpace(machine, GemvShape((case.m,), case.k))
    (found,) = search(machine, [(space, [case.what])], Budget(float("inf")), report)
    return found


def _document(case: Gemv, found: Found) -> dict[str, Any]:
    return {
        "name": key(case),
        "first": {"choice": found.space.describe(found.first), "cycles": found.first_cycles},
        "best": {"choice": found.space.describe(found.best), "cycles": found.best_cycles},
        "candidates": found.candidates,
        "L3_cycles": found.space.bound_cycles,
        "percent": {"first": found.first_percent_of_bound, "best": found.percent_of_bound},
    }


def _tables(results: Iterable[tuple[Gemv, Found]]) -> list[Any]:
    parts: list[Any] = ["device time, simulated; percent of L3 = the time of L3 / the time taken", ""]
    for machine, group in groupby(results, lambda pair: pair[0].machine):
        columns = ["product", "the cost model's", "the fastest", "cycles", "fastest", "% of L3", "fastest", "of"]
        parts += [table(f"what the search finds, {machine}", columns, [_row(*pair) for pair in group], left=3), ""]
    return parts


def _row(case: Gemv, found: Found) -> list[str]:
    same = found.best == found.first
    return [
        case.what,
        found.space.describe(found.first),
        "=" if same else found.space.describe(found.best),
        f"{found.first_cycles:,}",
        "=" if same else f"{found.best_cycles:,}",
        f"{found.first_percent_of_bound:.1f}",
        "=" if same else f"{found.percent_of_bound:.1f}",
        str(found.candidates),
    ]


if __name__ == "__main__":
    sys.exit(main())
