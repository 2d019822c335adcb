"""``wordline explain``: why each operation runs where it does, and which rule or limit bounds it there."""

from __future__ import annotations

import argparse
import dataclasses
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordline.cli.models import DEFAULT_CONTEXT, MODEL_HELP, add_layers_option, import_model
from wordline.cli.options import add_json_option, add_machine_options, machine_of, positive
from wordline.cli.output import print_json, print_tables, table, write_text
from wordline.cli.progress import progress
from wordline.cli.searching import add_search_option, tuning_of

if TYPE_CHECKING:
    from wordline.compiler.compiled import Kept
    from wordline.compiler.explain import Explanation

NAME = "explain"
HELP = "for every operation: candidate engines and their costs, the winner, the margin, and what bounds it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("op", nargs="?", metavar="OP", help="part of an operation's name, or a pattern: 'linear *mlp*'")
    parser.add_argument(
        "--context", type=positive, metavar="TOKENS", help=f"tokens attended over (default: {DEFAULT_CONTEXT})"
    )
    add_layers_option(parser)
    add_machine_options(parser)
    add_search_option(parser)
    add_json_option(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with all of it")


def run(args: argparse.Namespace) -> int:
    """Compile, time, explain."""
    machine = machine_of(args)
    with progress() as report:
        model = import_model(args.model, args.layers, report)
        from wordline.compiler.estimate import time_step
        from wordline.compiler.explain import explain

        context = args.context or min(DEFAULT_CONTEXT, int(model.metadata["max_context"]))
        compiled, result = time_step(model, machine, context, report, tuning=tuning_of(args.search, report, [context]))
        found = explain(compiled, result, args.op)
    title = f"{compiled.graph.name} on {machine.name} ({machine.hash[:12]}), context {context}"
    step_ns = result.nanoseconds
    if args.html is not None:
        from wordline.cli.explain_page import page

        write_text(args.html, page(title, found, step_ns))
    if args.json:
        print_json(
            {
                "model": compiled.graph.name,
                "machine": {"name": machine.name, "hash": machine.hash},
                "context": context,
                "ms_per_token": step_ns / 1e6,
                "operations": [document(e) for e in found],
            }
        )
    elif args.html is not None:
        print(f"{args.html}: {title}")
    else:
        print_tables(title, "", _overview(found, step_ns))
        if args.op is not None:
            for explanation in found:
                print_tables("", *_details(explanation))
    return 0


def document(e: Explanation) -> dict[str, Any]:
    """An explanation as plain data; times of one operation unless a name says otherwise."""
    return {
        "op": e.op,
        "count": e.count,
        "ops": list(e.ops),
        "kind": e.kind,
        "engine": e.winner.engine,
        "chosen": e.winner.name,
        "shared_with": list(e.shared_with),
        "candidates": [
            {
                "name": c.name,
                "engine": c.engine,
                "choice": None if c.choice is None else dataclasses.asdict(c.choice),
                "cost_ns": c.cost_ns if c.terms else None,
                "terms": [{"name": t.name, "ns": t.ns, "constants": t.constants} for t in c.terms],
                "excluded": c.excluded,
                "rule": c.rule,
            }
            for c in e.candidates
        ],
        "runner_up": None if e.runner_up is None else e.runner_up.name,
        "margin": e.margin,
        "search": None if e.kept is None else search_document(e.kept),
        "timed": {
            "channel_ns_all": e.channel_ns,
            "vector_busy_ns_all": e.vector_ns,
            "waited_ns_all": e.waited_ns,
            "bounds": [{"cause": b.cause, "ns_all": b.ns, "constants": b.constants} for b in e.bounds],
        },
    }


SHOWN = 12
"""Candidates of a search that are shown, the fastest first; --json has all."""


def search_document(kept: Kept) -> dict[str, Any]:
    """What a search found for an operation, as plain data; times in cycles."""
    found, space = kept.found, kept.found.space
    return {
        "shape": space.text,
        "bound": {"name": space.bound, "cycles": space.bound_cycles, "percent": found.percent_of_bound},
        "first": space.describe(found.first),
        "best": space.describe(found.best),
        "dropped": kept.dropped,
        "candidates": found.candidates,
        "complete": found.complete,
        "trials": [{"choice": t.text, "cycles": t.cycles, "failed": t.failed} for t in found.trials],
        "out": [
            {"choice": space.describe(choice), "reason": illegal.reason, "rule": illegal.rule}
            for choice, illegal in space.candidates().out
        ],
    }


def search_table(kept: Kept) -> Any:
    """The fastest candidates of a search, and what excludes others."""
    found, space = kept.found, kept.found.space
    timed = sorted((t for t in found.trials if t.cycles is not None), key=lambda t: t.cycles or 0)
    rows = []
    for trial in timed[:SHOWN]:
        note = "first choice" if trial.choice == found.first else ""
        if trial.choice == found.best:
            note = ", ".join(filter(None, (note, "fastest" if kept.dropped is None else f"fastest, {kept.dropped}")))
        percent = 100 * space.bound_cycles / (trial.cycles or 1)
        rows.append([trial.text, note, "", f"{trial.cycles:,}", f"{percent:.1f}"])
    reasons = Counter((illegal.reason, illegal.rule) for _, illegal in space.candidates().out)
    reasons.update((t.failed, "compiling it failed") for t in found.trials if t.failed is not None)
    rows += [[f"{count} others", reason, rule, "-", "-"] for (reason, rule), count in reasons.items()]
    title = (
        f"searched alone: {len(found.trials)} of {found.candidates} candidates timed, "
        f"{found.percent_of_bound:.1f} % of {space.bound} reached ({found.first_percent_of_bound:.1f} % by the first)"
    )
    return table(title, ["choice", "verdict", "rule", "cycles", f"% of {space.bound}"], rows, left=3)


def margin_text(e: Explanation) -> str:
    """The winner's lead over the next best."""
    if e.margin is None or e.runner_up is None:
        return "no other"
    return f"{e.margin:.2f}x over {e.runner_up.name}" + ("" if e.runner_up.excluded is None else " (excluded)")


def bound_text(e: Explanation) -> str:
    """The main bounds in percent of the operation's time."""
    total = sum(b.ns for b in e.bounds) or 1.0
    return ", ".join(f"{b.cause} {100 * b.ns / total:.0f} %" for b in e.bounds[:3])


def _overview(found: list[Explanation], step_ns: float) -> Any:
    rows = [
        [
            e.op,
            e.winner.name,
            margin_text(e),
            bound_text(e),
            str(e.count),
            f"{e.winner.cost_ns / 1e3:.3f}",
            f"{e.channel_ns / 1e6:.4f}",
            f"{e.vector_ns / 1e6:.4f}",
            f"{100 * max(e.channel_ns, 0) / step_ns:.1f} %",
        ]
        for e in found
    ]
    numbers = ["count", "cost µs", "channel ms", "vector busy ms", "of step"]
    columns = ["operation", "engine", "margin", "bound by", *numbers]
    return table("cost: modelled, of one; times: timed, of all", columns, rows, left=4)


def _details(e: Explanation) -> list[Any]:
    rows = []
    for c in e.candidates:
        verdict = "chosen" if c == e.winner else (c.excluded or "costs more")
        rule = "" if c.rule is None else c.rule
        rows.append([c.name, "", verdict, rule, f"{c.cost_ns:,.1f}" if c.terms else "-"])
        rows += [["", t.name, "", t.constants, f"{t.ns:,.1f}"] for t in c.terms]
    shared = f"; one task with {', '.join(e.shared_with)}" if e.shared_with else ""
    bounds = [[b.cause, b.constants, f"{b.ns / 1e3:,.3f}"] for b in e.bounds]
    searched = [] if e.kept is None else [search_table(e.kept)]
    return [
        table(
            f"{e.op} ({e.count}x): {e.winner.name}, {margin_text(e)}{shared}",
            ["engine", "term", "verdict", "rule, or constants", "ns"],
            rows,
            left=4,
        ),
        *searched,
        table("in the timed step", ["cause", "constants", "µs of all"], bounds, left=2),
    ]
