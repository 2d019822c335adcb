"""``wordline energy``: what a machine's energies are, where each comes from, and how far it can be trusted."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any

from wordline.cli.options import add_json_option, add_machine_options, machine_of
from wordline.cli.output import print_json, print_tables, table
from wordline.machines import Machine
from wordline.machines.schema import Energy
from wordline.sim.energy import BANKS, CONTROLLER, IO, EnergyModel, uses_of

NAME = "energy"
HELP = "the energy constants of a machine with source and confidence, and what each command costs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_machine_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the constants."""
    machine = machine_of(args)
    model = EnergyModel(machine)
    if args.json:
        print_json(_document(machine, model))
        return 0
    print_tables(
        f"machine {machine.name} ({machine.hash[:12]}); how they are used: docs/energy.md",
        "",
        _constants(machine),
        "",
        _commands(model),
        "",
        "not accounted:",
        *(f"  {what}" for what in model.not_accounted),
    )
    return 0


def _constants(machine: Machine) -> Any:
    found = [(entry.name, machine.field(f"energy.{entry.name}")) for entry in fields(Energy)]
    rows = [[name, f"{constant.value:,g}", constant.unit, constant.confidence] for name, constant in found]
    texts = [[uses_of(name), constant.source] for name, constant in found]
    made = table("energy of an event, power of what stands by", ["constant", "value", "unit", "confidence"], [], left=0)
    made.columns[0].justify = made.columns[2].justify = made.columns[3].justify = "left"
    made.add_column("charged for; source", overflow="fold")
    for row, (use, source) in zip(rows, texts, strict=True):
        made.add_row(*row, f"{use}\n  {source}")
    return made


def _commands(model: EnergyModel) -> Any:
    rows = [
        [name, *(f"{parts.get(part, 0.0):,.1f}" for part in (BANKS, IO, CONTROLLER)), f"{sum(parts.values()):,.1f}"]
        for name, parts in model.commands.items()
    ]
    return table("pJ of one command on one channel", ["command", BANKS, IO, CONTROLLER, "together"], rows)


def _document(machine: Machine, model: EnergyModel) -> dict[str, Any]:
    constants = {}
    for entry in fields(Energy):
        found = machine.field(f"energy.{entry.name}")
        constants[entry.name] = {
            "value": found.value,
            "unit": found.unit,
            "confidence": found.confidence,
            "charged_for": uses_of(entry.name),
            "source": found.source,
        }
    return {
        "machine": {"name": machine.name, "hash": machine.hash},
        "constants": constants,
        "command_pj": model.commands,
        "not_accounted": list(model.not_accounted),
    }
