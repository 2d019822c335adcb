"""``wordline estimate``: how long a decode step of a model would take on a machine, without its weights."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wordline.cli.models import MODEL_HELP, add_layers_option, chosen_contexts, contexts, import_model
from wordline.cli.options import add_json_option, add_machine_options, machine_of
from wordline.cli.output import print_json, print_tables, table
from wordline.cli.progress import progress
from wordline.cli.searching import add_search_option, choice_tables, search_document, tuning_of

if TYPE_CHECKING:
    from wordline.artifact import Chosen, SearchedStep
    from wordline.compiler.estimate import Estimate, PartTime, StepTime

NAME = "estimate"
HELP = "compile a model without weights and time its decode step: per operation, percent of the limits, energy"

MIB = 1 << 20
SHOWN = 0.0005
"""Parts below this share of the step show as 0.0 % and are left out of the tables (not of the JSON)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--context",
        action="append",
        type=contexts,
        metavar="TOKENS,...",
        help="tokens attended over; several are timed with the program for the longest (default: 4096)",
    )
    add_layers_option(parser)
    add_machine_options(parser)
    add_search_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Compile, time and print."""
    machine = machine_of(args)
    with progress() as report:
        model = import_model(args.model, args.layers, report)
        from wordline.compiler.estimate import estimate

        asked = chosen_contexts(args.context, model)
        found = estimate(model, machine, asked, report, tuning_of(args.search, report, asked))
    if args.json:
        print_json(document(found))
        return 0
    print_tables(*_head(found), "", _steps(found), "", _memory(found))
    if found.compiled.tuned is not None:
        print_tables("", *choice_tables(*_choices(found)))
    for step in found.steps:
        print_tables("", _causes(step), "", _energy(step), "", _parts(step, "kind of operation", step.kinds))
    longest = found.steps[-1]
    print_tables("", _parts(longest, "operation", longest.operations))
    return 0


def _choices(found: Estimate) -> tuple[Sequence[Chosen], SearchedStep | None]:
    """What was chosen, and what a search found."""
    from wordline.compiler.contents import chosen, searched_step

    tuned = found.compiled.tuned
    return chosen(found.compiled), None if tuned is None else searched_step(tuned)


def what_if(found: Estimate) -> str | None:
    """What the program leaves out of the model, if anything."""
    if found.shape.layers == found.model_layers:
        return None
    return f"only the first {found.shape.layers} of {found.model_layers} layers were compiled; nothing is scaled"


def document(found: Estimate) -> dict[str, Any]:
    """The estimate as plain data; the times at the top are those of the longest context."""
    memory = dataclasses.asdict(found.memory)
    steps = [_step_document(step) for step in found.steps]
    return {
        "model": {
            "name": found.model,
            "architecture": found.architecture,
            "parameters": found.parameters,
            "layers": found.shape.layers,
            "model_layers": found.model_layers,
        },
        "what_if": what_if(found),
        "machine": {"name": found.machine.name, "hash": found.machine.hash},
        "clock": "device",
        "batch": 1,
        "compiled_for_context": found.max_context,
        "context": found.steps[-1].context,
        "ms_per_token": steps[-1]["ms_per_token"],
        "joules_per_token": steps[-1]["joules_per_token"],
        "percent": steps[-1]["percent"],
        "memory": memory,
        **search_document(*_choices(found)),
        "steps": steps,
    }


def _step_document(step: StepTime) -> dict[str, Any]:
    return {
        "context": step.context,
        "cycles": step.cycles,
        "ms_per_token": step.ns / 1e6,
        "tokens_per_s": 1e9 / step.ns,
        "joules_per_token": step.energy.joules,
        "limits_ms": {"L0": step.l0_ns / 1e6, "L2": step.l2_ns / 1e6, "vector_unit": step.vector_ns / 1e6},
        "percent": {
            "L0": step.percent_of_l0,
            "L2": step.percent_of_l2,
            "larger_of_L2_and_vector_unit": step.percent_of_bound,
        },
        "causes_ms": _ms(step.causes_ns),
        "kinds": [_part_document(part) for part in step.kinds],
        "operations": [_part_document(part) for part in step.operations],
        "energy": dataclasses.asdict(step.energy),
        "kv": dataclasses.asdict(step.kv),
    }


def _part_document(part: PartTime) -> dict[str, Any]:
    return {
        "name": part.name,
        "count": part.count,
        "channel_ms": part.channel_ns / 1e6,
        "vector_busy_ms": part.vector_ns / 1e6,
        "link_busy_ms": part.link_ns / 1e6,
        "causes_ms": _ms(part.causes_ns),
        "joules": part.energy.total / 1e12,
        "energy_kinds_j": {name: pj / 1e12 for name, pj in part.energy.kinds.items()},
    }


def _ms(causes: Mapping[str, float]) -> dict[str, float]:
    return {name: ns / 1e6 for name, ns in causes.items()}


def _head(found: Estimate) -> list[str]:
    lines = [
        f"{found.model} ({found.architecture}, {found.parameters / 1e6:,.1f} M parameters, {found.shape.layers} "
        f"layers) on {found.machine.name} ({found.machine.hash[:12]})",
        f"compiled without weights for contexts up to {found.max_context}, batch 1; device time from the cycle model",
    ]
    note = what_if(found)
    return lines if note is None else [*lines, f"what if: {note}"]


def _steps(found: Estimate) -> Any:
    rows = [
        [
            str(step.context),
            f"{step.cycles:,}",
            f"{step.ns / 1e6:.4f}",
            f"{1e9 / step.ns:.1f}",
            f"{step.l0_ns / 1e6:.4f}",
            f"{step.percent_of_l0:.1f} %",
            f"{step.l2_ns / 1e6:.4f}",
            f"{step.percent_of_l2:.1f} %",
            f"{step.vector_ns / 1e6:.4f}",
            f"{step.percent_of_bound:.1f} %",
            f"{1e3 * step.energy.joules:.3f}",
            f"{step.energy.watts:.1f}",
        ]
        for step in found.steps
    ]
    columns = [
        "context",
        "cycles",
        "ms/token",
        "tokens/s",
        "L0 ms",
        "of L0",
        "L2 ms",
        "of L2",
        "vector ms",
        "of larger",
        "mJ/token",
        "W",
    ]
    title = "a decode step; vector ms: the vector unit's bound; larger: of L2 and it"
    return table(title, columns, rows, left=0)


def _memory(found: Estimate) -> Any:
    memory = found.memory
    rows = [
        [owner.name, str(owner.count), str(owner.rows), f"{owner.bytes / MIB:,.1f}", f"{owner.used_bytes / MIB:,.1f}"]
        for owner in memory.owners
    ]
    rows.append(["weights together", "", str(memory.weight_rows), f"{memory.weight_bytes / MIB:,.1f}", ""])
    rows += [
        [f"KV cache at {s.context}: {s.kv.pages} pages", "", str(s.kv.rows), f"{s.kv.bytes / MIB:,.1f}", ""]
        for s in found.steps
    ]
    rows.append(["device", "", str(memory.device_rows), f"{memory.device_bytes / MIB:,.1f}", ""])
    title = (
        f"memory; scratch of a channel: {memory.scratch_live:,} bytes live at most, laid out in "
        f"{memory.scratch_peak:,} of {memory.scratch_bytes:,}; "
        f"program {memory.program_bytes:,} of {memory.program_limit:,} bytes, "
        f"page table {memory.page_table_bytes:,} of {memory.controller_limit:,} bytes"
    )
    return table(title, ["owner", "count", "rows", "MiB", "used MiB"], rows)


def _causes(step: StepTime) -> Any:
    from wordline.engine.report import CAUSE_NAMES

    rows = [
        [CAUSE_NAMES[name], f"{ns / 1e6:.4f}", f"{100 * ns / step.ns:.1f} %"]
        for name, ns in sorted(step.causes_ns.items(), key=lambda item: -item[1])
        if abs(ns) >= SHOWN * step.ns
    ]
    return table(f"context {step.context}, by cause (channels)", ["cause", "ms", "of step"], rows)


def _energy(step: StepTime) -> Any:
    from wordline.engine.report import energy_rows

    return table(f"context {step.context}, by energy", ["energy of", "mJ", "of step"], energy_rows(step.energy))


def _parts(step: StepTime, what: str, parts: tuple[PartTime, ...]) -> Any:
    from wordline.engine.report import main_causes

    rows = [
        [
            part.name,
            str(part.count),
            f"{part.channel_ns / 1e6:.4f}",
            f"{100 * part.channel_ns / step.ns:.1f} %",
            f"{part.vector_ns / 1e6:.4f}",
            f"{part.energy.total / 1e9:.4f}",
            f"{100 * part.energy.total / 1e12 / step.energy.joules:.1f} %",
            main_causes(part.causes_ns, step.ns),
        ]
        for part in parts
        if part.channel_ns + part.vector_ns >= SHOWN * step.ns or part.energy.total >= SHOWN * 1e12 * step.energy.joules
    ]
    title = f"context {step.context}, by {what}"
    return table(
        title, [what, "count", "channel ms", "of step", "vector busy ms", "mJ", "of energy", "main causes"], rows
    )
