"""``wordline timing``: how long a program in the public simulator's trace language takes."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wordline.cli.critical_path import add_perfetto_option, path_document, path_tables, write_perfetto
from wordline.cli.options import add_json_option, add_machine_options, machine_of
from wordline.cli.output import print_json, print_tables, table, write_text
from wordline.cli.schedules import RECORD_LIMIT, add_schedule_option, schedule_text
from wordline.machines import Machine
from wordline.sim.critical_path import PathPart
from wordline.sim.energy import EnergyModel, EnergyTotals, activity_of_trace
from wordline.sim.traces import PROFILES, TraceTime, time_trace

NAME = "timing"
HELP = "cycles and energy of an AiM trace, as the public simulator counts them or by our own rules"

DEFAULT_MACHINE = "gddr6-aim-card"
DEFAULT_PROFILE = "aim-simulator"
SHOWN_TEXT = 48


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a file in the language of the public AiM simulator")
    parser.add_argument(
        "--profile", choices=tuple(PROFILES), default=DEFAULT_PROFILE, help="whose rules (default: %(default)s)"
    )
    add_machine_options(parser)
    parser.set_defaults(machine=DEFAULT_MACHINE)
    add_schedule_option(parser)
    parser.add_argument("--explain", action="store_true", help="say what was waited for: the critical path")
    add_perfetto_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Time the trace."""
    machine = machine_of(args)
    time = time_trace(
        machine,
        args.profile,
        args.trace,
        record=0 if args.schedule is None else RECORD_LIMIT,
        explain=args.explain or args.perfetto is not None,
    )
    if args.schedule is not None:
        write_text(args.schedule, schedule_text(args.trace.name, time.schedule, time.cycles))
    if args.perfetto is not None and time.critical_path is not None:
        title = f"{args.trace}, profile {args.profile}"
        write_perfetto(args.perfetto, time.critical_path, machine, _label, title)
    model = EnergyModel(machine)
    ledger = model.ledger(activity_of_trace(time, machine))
    energy = model.totals(ledger, time.nanoseconds)
    if args.json:
        print_json(_document(machine, args, time, energy))
        return 0
    channels = len(time.channels)
    kinds = ledger.kinds
    rows = [
        [command, f"{count:,}", f"{count / max(channels, 1):,.1f}", f"{kinds.pop(command, 0.0) / 1e3:,.3f}"]
        for command, count in time.commands.items()
    ]
    print_tables(
        f"{args.trace}: {time.cycles:,} cycles, {time.nanoseconds:,.1f} ns of device time",
        f"energy {ledger.total / 1e3:,.3f} nJ, {machine.organisation.channels} channels (constants: wordline energy)",
        f"profile {args.profile} of machine {machine.name} ({machine.hash[:12]})",
        f"{time.lines:,} instructions for {channels} channels ({time.simulated_channels} groups of alike ones)",
        "",
        table("DRAM commands", ["command", "all channels", "a channel", "nJ"], rows),
        "",
        table(
            "beside commands",
            ["kind", "nJ"],
            [[kind, f"{pj / 1e3:,.3f}"] for kind, pj in kinds.items()],
        ),
    )
    if args.explain and time.critical_path is not None:
        print_tables(*path_tables(time.critical_path, "line", _lines(args.trace)))
    return 0


def _label(_lane: int, line: int) -> dict[str, Any]:
    return {"line": line}


def _lines(trace: Path) -> Callable[[PathPart], str]:
    """What the text says of a part: the line that waited."""
    lines = trace.read_text(encoding="utf-8", errors="replace").split("\n")

    def heading(part: PathPart) -> str:
        text = " ".join(lines[part.instruction - 1].split())
        return f"{part.instruction}: {text if len(text) <= SHOWN_TEXT else text[: SHOWN_TEXT - 3] + '...'}"

    return heading


def _document(machine: Machine, args: argparse.Namespace, time: TraceTime, energy: EnergyTotals) -> dict[str, Any]:
    return {
        "trace": str(args.trace),
        "profile": args.profile,
        "machine": {"name": machine.name, "hash": machine.hash},
        "cycles": time.cycles,
        "ns": time.nanoseconds,
        "instructions": time.lines,
        "channels": list(time.channels),
        "commands": dict(time.commands),
        "energy": dataclasses.asdict(energy),
        **_explanation(machine, args, time),
    }


def _explanation(machine: Machine, args: argparse.Namespace, time: TraceTime) -> dict[str, Any]:
    if not args.explain or time.critical_path is None:
        return {}
    return {"critical_path": path_document(time.critical_path, machine, _label)}
