"""``wordline timing``: how long a program in the public simulator's trace language takes."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from wordline.cli.options import add_json_option, add_machine_options, machine_of
from wordline.cli.output import print_json, print_tables, table, write_text
from wordline.cli.schedules import RECORD_LIMIT, add_schedule_option, schedule_text
from wordline.machines import Machine
from wordline.sim.energy import EnergyModel, EnergyTotals, activity_of_trace
from wordline.sim.traces import PROFILES, TraceTime, time_trace

NAME = "timing"
HELP = "cycles and energy of an AiM trace, as the public simulator counts them or by our own rules"

DEFAULT_MACHINE = "gddr6-aim-card"
DEFAULT_PROFILE = "aim-simulator"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("trace", metavar="TRACE", type=Path, help="a file in the language of the public AiM simulator")
    parser.add_argument(
        "--profile", choices=tuple(PROFILES), default=DEFAULT_PROFILE, help="whose rules (default: %(default)s)"
    )
    add_machine_options(parser)
    parser.set_defaults(machine=DEFAULT_MACHINE)
    add_schedule_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Time the trace."""
    machine = machine_of(args)
    time = time_trace(machine, args.profile, args.trace, record=0 if args.schedule is None else RECORD_LIMIT)
    if args.schedule is not None:
        write_text(args.schedule, schedule_text(args.trace.name, time.schedule, time.cycles))
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
    return 0


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
    }
