"""``wordline check``: whether a schedule of DRAM commands obeys the machine file."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wordline.cli.options import add_entry_options, add_json_option, add_machine_options, machine_of, positive
from wordline.cli.output import print_json, print_tables, table, write_text
from wordline.cli.schedules import RECORD_LIMIT, add_schedule_option, bursts_text
from wordline.cli.targets import is_artifact, model_path
from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.sim.checker import LIMIT, PROFILES, Report, Violation, check, check_file, fold

if TYPE_CHECKING:
    from wordline.artifact import Artifact

NAME = "check"
HELP = "verify every interval, bank, mode and refresh rule of a schedule of DRAM commands"

DEFAULT_MACHINE = "gddr6-aim-card"
FOUND = 1  # exit code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a stamped schedule, a trace in the language of the public AiM simulator, or an artifact (NAME.wl)",
    )
    parser.add_argument("--profile", choices=PROFILES, default=PROFILES[0], help="whose rules (default: %(default)s)")
    add_machine_options(parser)
    parser.set_defaults(machine=None)
    add_entry_options(parser)
    parser.add_argument(
        "--limit", type=positive, default=LIMIT, metavar="N", help="violations to list (default: %(default)s)"
    )
    add_schedule_option(parser)
    add_json_option(parser)


@dataclass(frozen=True)
class _Checked:
    """What was checked, by whose rules."""

    kind: str
    machine: Machine
    reports: list[Report]


def run(args: argparse.Namespace) -> int:
    """Check; 1 if anything was found."""
    path = model_path(args.target)
    if is_artifact(path):
        checked = _check_artifact(args, path)
    elif _is_trace(path):
        checked = _check_trace(args, path)
    else:
        if args.schedule is not None:
            raise WordlineError(
                "conflicting-options",
                f"{path} is a schedule itself, so --schedule has nothing to write",
                remedy="leave out --schedule",
            )
        machine = _machine(args, DEFAULT_MACHINE)
        checked = _Checked("schedule", machine, check_file(path, machine, args.profile, limit=args.limit))
    count = sum(report.count for report in checked.reports)
    if args.json:
        print_json(_document(args, checked, count))
    else:
        print_tables(*_lines(args, checked, count))
    return FOUND if count else 0


def _machine(args: argparse.Namespace, default: str) -> Machine:
    args.machine = args.machine or default
    return machine_of(args)


def _is_trace(path: Path) -> bool:
    """Whether the first line that says something is one of the AiM language."""
    with path.open("rb") as file:
        for line in file:
            words = line.partition(b"#")[0].split()
            if words:
                return words[0] in {b"AiM", b"W", b"R"}
    return False


def _check_trace(args: argparse.Namespace, path: Path) -> _Checked:
    from wordline.sim.traces import time_trace

    machine = _machine(args, DEFAULT_MACHINE)
    time = time_trace(machine, args.profile, path, record=RECORD_LIMIT)
    return _checked(args, "trace", machine, str(path), time.schedule, time.cycles)


def _check_artifact(args: argparse.Namespace, path: Path) -> _Checked:
    """Time one run of an artifact on its own machine, and check that by the rules of the one that is named."""
    from wordline.artifact import open_artifact
    from wordline.sim.submission import entry_submission
    from wordline.sim.timing import time_program

    artifact: Artifact = open_artifact(path)
    machine = artifact.machine if args.machine is None and not args.set else _machine(args, artifact.machine.name)
    submission = entry_submission(artifact, args.entry, args.args)
    time = time_program(artifact.machine, submission.image, submission.memory, trace=True)
    return _checked(args, "artifact", machine, submission.title, time.trace, time.cycles)


def _checked(
    args: argparse.Namespace,
    kind: str,
    machine: Machine,
    name: str,
    commands: Iterable[tuple[int | str, ...]],
    cycles: int,
) -> _Checked:
    bursts = list(fold(commands))
    if args.schedule is not None:
        write_text(args.schedule, bursts_text(name, bursts, cycles))
    return _Checked(kind, machine, [check(machine, bursts, args.profile, name=name, limit=args.limit)])


# --- what is shown


def _document(args: argparse.Namespace, checked: _Checked, count: int) -> dict[str, Any]:
    return {
        "target": args.target,
        "kind": checked.kind,
        "profile": args.profile,
        "machine": {"name": checked.machine.name, "hash": checked.machine.hash},
        "commands": sum(report.commands for report in checked.reports),
        "count": count,
        "schedules": [report.document() for report in checked.reports],
    }


def _lines(args: argparse.Namespace, checked: _Checked, count: int) -> Iterable[Any]:
    machine = checked.machine
    yield f"rules of profile {args.profile} on machine {machine.name} ({machine.hash[:12]})"
    clean = [report for report in checked.reports if report.ok]
    if len(clean) == 1:
        yield f"{_summary(clean[0])}: no violation"
    elif clean:
        commands = sum(report.commands for report in clean)
        yield f"{len(clean)} schedules, {_counted(commands, 'command')}: no violation"
    listed = 0
    for report in checked.reports:
        if report.ok:
            continue
        yield f"{_summary(report)}: {_counted(report.count, 'violation')}"
        shown = report.violations[: args.limit - listed]
        listed += len(shown)
        if shown:
            columns = ["rule", "command", "cycle", "channel", "earlier", "required", "actual"]
            yield table("", columns, map(_row, shown), 2)
            yield from dict.fromkeys(f"  {violation.rule}: {violation.text}" for violation in shown)
    if listed < count:
        yield f"{count - listed:,} more are not listed; --limit N lists more"


def _summary(report: Report) -> str:
    commands, channels = _counted(report.commands, "command"), _counted(len(report.channels), "channel")
    return f"{report.name}: {commands}, {channels}, {report.cycles:,} cycles"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + "s" * (number != 1)


def _row(violation: Violation) -> list[str]:
    v = violation
    earlier = "" if v.earlier is None else f"{_command(v.earlier, v.earlier_bank)} @{v.earlier_cycle}"
    numbers = ["" if value is None else str(value) for value in (v.required, v.actual)]
    return [v.rule, _command(v.command, v.bank), str(v.cycle), str(v.channel), earlier, *numbers]


def _command(command: str, bank: int | None) -> str:
    return command if bank is None or bank < 0 else f"{command} bank {bank}"
