"""``wordline profile``: what a step of a model waits for, as a critical path."""

from __future__ import annotations

import argparse
from bisect import bisect_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wordline.cli.critical_path import add_perfetto_option, path_document, path_tables, percent, short, write_perfetto
from wordline.cli.models import DEFAULT_CONTEXT, MODEL_HELP, add_layers_option, import_model
from wordline.cli.options import DEFAULT_MACHINE, add_json_option, add_machine_options, machine_of, positive
from wordline.cli.output import print_json, print_tables, table
from wordline.cli.progress import progress
from wordline.cli.targets import is_artifact
from wordline.errors import WordlineError

if TYPE_CHECKING:
    from wordline.isa.program import Program
    from wordline.isa.provenance import Range
    from wordline.machines import Machine
    from wordline.sim.critical_path import CriticalPath, PathPart
    from wordline.sim.timing import TimingResult

NAME = "profile"
HELP = "what a step of a model or an artifact waits for: the critical path, by constraint and by operation"

OUTSIDE = "between operations"
SHOWN_OPERATIONS = 24
SHOWN_WAITS = 4


class Run(NamedTuple):
    """What was profiled."""

    name: str
    machine: Machine
    context: int
    program: Program
    origins: Iterable[Range]
    time: TimingResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL", help=f"a .wl folder; or {MODEL_HELP}")
    parser.add_argument("--entry", default="decode", help="entry point of an artifact (default: %(default)s)")
    parser.add_argument(
        "--context",
        type=positive,
        metavar="TOKENS",
        help=f"tokens attended over (default: {DEFAULT_CONTEXT}, or the longest that there is)",
    )
    add_layers_option(parser)
    add_machine_options(parser)
    parser.set_defaults(machine=None)
    add_perfetto_option(parser)
    parser.add_argument(
        "--channels",
        type=_channels,
        metavar="LIST|all",
        help="channels in the file of --perfetto, such as 0,4-7 (default: those on the critical path)",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Time one step and explain it."""
    path = Path(args.model).expanduser()
    done = _run_artifact(path, args) if is_artifact(path) else _run_model(args)
    found = done.time.critical_path
    if found is None:
        raise RuntimeError("the model was asked for the critical path")
    shown = _shown(args.channels, done)
    origins = _Origins(done, found)
    title = f"{done.name} on {done.machine.name} ({done.machine.hash[:12]}), context {done.context}"
    if args.perfetto is not None:
        on_path = {channel for part in found.parts for channel in found.lanes[part.lane].channels[:1]}
        write_perfetto(args.perfetto, found, done.machine, origins.label, title, on_path if shown is None else shown)
    if args.json:
        print_json(
            {
                "model": done.name,
                "machine": {"name": done.machine.name, "hash": done.machine.hash},
                "context": done.context,
                "cycles": done.time.cycles,
                "ns": done.time.nanoseconds,
                "operations": _operations_document(found, origins.operation),
                "critical_path": path_document(found, done.machine, origins.label),
            }
        )
        return 0
    print_tables(
        title,
        f"{done.time.cycles:,} cycles, {done.time.nanoseconds / 1e6:,.4f} ms of device time",
        *path_tables(found, "operation", origins.operation_of_part, _operation_table(found, origins.operation)),
    )
    return 0


def _shown(channels: set[int] | None, done: Run) -> set[int] | None:
    """The channels asked for, None if none were."""
    present = set(range(done.machine.organisation.channels))
    if channels is None or channels <= present:
        return present if channels == set() else channels
    raise WordlineError(
        "bad-channel",
        f"{done.machine.name} has no channel {min(channels - present)}",
        where="--channels",
        remedy=f"give channels from 0 to {max(present)}",
    )


def _run_artifact(path: Path, args: argparse.Namespace) -> Run:
    from wordline.artifact import ArgumentNames, open_artifact
    from wordline.sim.submission import entry_submission
    from wordline.sim.timing import time_program

    if args.layers is not None:
        raise WordlineError(
            "conflicting-options", "an artifact has the layers that it has", where="--layers", remedy="name the model"
        )
    named = args.machine is not None or bool(args.set)
    args.machine = args.machine or DEFAULT_MACHINE
    artifact = open_artifact(path, machine_of(args) if named else None)
    limit = artifact.manifest.memory.kv.max_context
    context = args.context or min(DEFAULT_CONTEXT, limit)
    if context > limit:
        raise WordlineError(
            "bad-context",
            f"context {context} is outside 1..{limit}",
            where=str(path),
            remedy=f"give --context up to {limit}",
        )
    submission = entry_submission(artifact, args.entry, {ArgumentNames.POSITION: context - 1})
    return Run(
        artifact.manifest.model.name,
        artifact.machine,
        context,
        artifact.program(args.entry),
        artifact.manifest.entries[args.entry].provenance,
        time_program(artifact.machine, submission.image, submission.memory, explain=True),
    )


def _run_model(args: argparse.Namespace) -> Run:
    args.machine = args.machine or DEFAULT_MACHINE
    machine = machine_of(args)
    with progress() as report:
        model = import_model(args.model, args.layers, report)
        from wordline.compiler.estimate import time_step

        context = args.context or min(DEFAULT_CONTEXT, int(model.metadata["max_context"]))
        compiled, time = time_step(model, machine, context, report, explain=True)
    generated = compiled.generated
    return Run(compiled.graph.name, machine, context, generated.program, generated.provenance, time)


class _Origins:
    """Where the instructions on a path come from."""

    def __init__(self, done: Run, path: CriticalPath) -> None:
        self.program = done.program
        self.streams = [lane.stream for lane in path.lanes]
        self.ranges: dict[int, list[Range]] = {}
        for origin in sorted(done.origins, key=lambda o: (o.stream, o.first)):
            self.ranges.setdefault(origin.stream, []).append(origin)
        self.firsts = {stream: [o.first for o in origins] for stream, origins in self.ranges.items()}

    def operation(self, lane: int, instruction: int) -> str:
        """Label of the operation."""
        stream = self.streams[lane]
        at = bisect_right(self.firsts.get(stream, []), instruction) - 1
        if at < 0 or self.ranges[stream][at].last < instruction:
            return OUTSIDE
        return self.ranges[stream][at].op

    def operation_of_part(self, part: PathPart) -> str:
        return self.operation(part.lane, part.instruction)

    def label(self, lane: int, instruction: int) -> dict[str, Any]:
        """What is said of an instruction; of a WAIT also for which signal."""
        stream = self.streams[lane]
        known = {"stream": stream, "instruction": instruction, "operation": self.operation(lane, instruction)}
        instructions = self.program.streams[stream].instrs
        if instruction < len(instructions) and instructions[instruction].name == "WAIT":
            known["signal"] = instructions[instruction].fields["signal"]
        return known


def _operations_document(path: CriticalPath, operation: Callable[[int, int], str]) -> list[dict[str, Any]]:
    from wordline.sim.critical_path import shares

    return [
        {
            "operation": name,
            "cycles": sum(part.cycles for part in parts),
            "kinds": {kind: share.cycles for kind, share in shares(parts, lambda part: part.kind).items()},
        }
        for name, parts in _by_operation(path, operation).items()
    ]


def _by_operation(path: CriticalPath, operation: Callable[[int, int], str]) -> dict[str, list[PathPart]]:
    """The parts of each operation, layers together, longest first."""
    from wordline.artifact.names import starred

    found: dict[str, list[PathPart]] = {}
    for part in path.parts:
        found.setdefault(starred(operation(part.lane, part.instruction)), []).append(part)
    return dict(sorted(found.items(), key=lambda item: -sum(part.cycles for part in item[1])))


def _operation_table(path: CriticalPath, operation: Callable[[int, int], str]) -> Any:
    from wordline.sim.critical_path import shares

    rows = []
    by_operation = _by_operation(path, operation)
    for name, parts in list(by_operation.items())[:SHOWN_OPERATIONS]:
        waits = list(shares(parts, lambda part: part.rule).items())[:SHOWN_WAITS]
        total = sum(part.cycles for part in parts)
        text = ", ".join(f"{short(rule)} {percent(share.cycles, total)}" for rule, share in waits)
        rows.append([name, text, f"{total:,}", percent(total, path.cycles)])
    hidden = list(by_operation.values())[SHOWN_OPERATIONS:]
    if hidden:
        total = sum(part.cycles for parts in hidden for part in parts)
        rows.append([f"{len(hidden)} others", "", f"{total:,}", percent(total, path.cycles)])
    title = "critical path: by operation, layers together"
    return table(title, ["operation", "waited for", "cycles", "of all"], rows, left=2)


def _channels(text: str) -> set[int]:
    """Argument type: numbers and ranges; the empty set stands for all."""
    if text == "all":
        return set()
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            low = int(first)
            high = int(last) if dash else low
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is no channel and no range of channels") from None
        if not 0 <= low <= high:
            raise argparse.ArgumentTypeError(f"{part!r} is no range of channels")
        found |= set(range(low, high + 1))
    return found
