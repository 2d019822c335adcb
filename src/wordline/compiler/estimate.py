"""How long a decode step takes, and what it needs, from a model's configuration alone: compiled for real, then timed.

All times are device time from the cycle model, all energies those of the ledger (docs/energy.md). Nothing is scaled or
interpolated: every figure belongs to a program that was compiled, at a context that was timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.artifact.names import starred
from wordline.compiler.arguments import argument_memory
from wordline.compiler.compiled import Compiled
from wordline.compiler.contents import model_shape_of
from wordline.compiler.footprint import KvFootprint, Owner, kv_footprint, live_peak, weight_owners
from wordline.compiler.pipeline import Progress, check_context, compile_graph, silent
from wordline.compiler.tuning import Tuning
from wordline.frontend.load import ImportedModel
from wordline.machines import Machine
from wordline.sim.energy import EnergyModel, EnergyTotals, Ledger, activity_of, split_activity
from wordline.sim.limits import decode_limits
from wordline.sim.shapes import ModelShape
from wordline.sim.timing import CAUSES, Span, SpanTime, TimingModel, TimingResult

OUTSIDE = "start and end"
"""What cycles are called that belong to no instruction: waiting for the slowest channel, refresh left to do."""


@dataclass(frozen=True)
class PartTime:
    """Time of one kind of work, or of one operation of every layer together, in ns, and its energy.

    ``channel_ns`` is the channels' time (mean), split in ``causes_ns``; over all parts it adds up to the step, and so
    does the energy. ``vector_ns`` and ``link_ns`` are the busy times of vector unit and link, most of it beside channel
    time.
    """

    name: str
    count: int
    channel_ns: float
    vector_ns: float
    link_ns: float
    causes_ns: Mapping[str, float]
    energy: Ledger


@dataclass(frozen=True)
class StepTime:
    """One decode step that attends over ``context`` tokens.

    ``vector_ns`` is the vector unit's own bound: how long this program keeps it busy.
    """

    context: int
    cycles: int
    ns: float
    l0_ns: float
    l2_ns: float
    vector_ns: float
    causes_ns: Mapping[str, float]
    kinds: tuple[PartTime, ...]
    operations: tuple[PartTime, ...]
    kv: KvFootprint
    energy: EnergyTotals

    @property
    def percent_of_l0(self) -> float:
        """L0 in percent of the time taken."""
        return 100 * self.l0_ns / self.ns

    @property
    def percent_of_l2(self) -> float:
        """L2 in percent of the time taken."""
        return 100 * self.l2_ns / self.ns

    @property
    def percent_of_bound(self) -> float:
        """Percent of the larger of L2 and the vector unit's bound."""
        return 100 * max(self.l2_ns, self.vector_ns) / self.ns


@dataclass(frozen=True)
class MemoryPlan:
    """What the program owns of the device whatever the context; sizes in bytes, ``scratch_*`` in each channel.

    ``scratch_peak`` is the highest byte used, ``scratch_live`` the most that hold data at one time.
    """

    owners: tuple[Owner, ...]
    weight_rows: int
    weight_bytes: int
    device_rows: int
    device_bytes: int
    scratch_peak: int
    scratch_live: int
    scratch_bytes: int
    program_bytes: int
    program_limit: int
    page_table_bytes: int
    controller_limit: int


@dataclass(frozen=True)
class Estimate:
    """A model on a machine, and the program that was timed.

    ``layers`` of the model's ``model_layers`` were compiled (fewer: a what-if).
    """

    model: str
    architecture: str
    parameters: int
    shape: ModelShape
    model_layers: int
    machine: Machine
    max_context: int
    memory: MemoryPlan
    steps: tuple[StepTime, ...]
    compiled: Compiled


def estimate(
    model: ImportedModel,
    machine: Machine,
    contexts: Sequence[int],
    progress: Progress = silent,
    tuning: Tuning | None = None,
) -> Estimate:
    """Compile ``model`` for the longest of ``contexts`` and time one step at each.

    Args:
        model: imported without weights, or with them: they are not read.
        machine: to compile for.
        contexts: tokens attended over, 1 to the model's maximum.
        progress: told each phase.
        tuning: search for better choices than the cost model's.

    Raises:
        WordlineError: "bad-context", or what the compiler refuses ("device-full" with the owner of each part).
    """
    compiled = _compiled(model, machine, contexts, progress, tuning)
    shape = ModelShape(name=str(model.metadata["name"]), **model_shape_of(model, compiled.lowered))
    progress("timing")
    image = compiled.generated.program.to_bytes()
    timing = TimingModel(machine)
    slot = timing.load(image)
    steps = [
        _step(compiled, shape, context, timing.run(slot, 0, _memory(compiled, context), instruction_commands=True))
        for context in contexts
    ]
    return Estimate(
        shape.name,
        str(model.metadata["architecture"]),
        int(model.metadata["parameters"]),
        shape,
        int(model.metadata["model_layers"]),
        machine,
        compiled.max_context,
        _memory_plan(compiled, len(image)),
        tuple(steps),
        compiled,
    )


def time_step(
    model: ImportedModel,
    machine: Machine,
    context: int,
    progress: Progress = silent,
    *,
    explain: bool = False,
    tuning: Tuning | None = None,
) -> tuple[Compiled, TimingResult]:
    """The compiled program, and the time of one step at ``context``; arguments and errors as :func:`estimate`.

    With ``explain`` the result has the critical path.
    """
    compiled = _compiled(model, machine, [context], progress, tuning)
    progress("timing")
    timing = TimingModel(machine)
    slot = timing.load(compiled.generated.program)
    return compiled, timing.run(slot, 0, _memory(compiled, context), explain=explain)


def _compiled(
    model: ImportedModel, machine: Machine, contexts: Sequence[int], progress: Progress, tuning: Tuning | None
) -> Compiled:
    for context in contexts:
        check_context(model, context, str(model.metadata["name"]))
    return compile_graph(model.graph, machine, max(contexts), progress, tuning=tuning)


def _memory(compiled: Compiled, context: int) -> npt.NDArray[np.int32]:
    return argument_memory(compiled.lowered.kv, compiled.weight_rows, context)


def _step(compiled: Compiled, shape: ModelShape, context: int, result: TimingResult) -> StepTime:
    machine, tck = compiled.machine, result.tck_ns
    limits = decode_limits(machine, shape, 1, context)
    parts = compiled.generated.provenance
    causes = result.causes
    model, activity = EnergyModel(machine), activity_of(result, machine)

    def table(label: Callable[[Any], str]) -> tuple[PartTime, ...]:
        spans = [Span(r.stream, r.first, r.last, label(r)) for r in parts]
        counts: dict[str, set[str]] = {}
        for r in parts:
            counts.setdefault(label(r), set()).add(r.op)
        times = result.split(spans)
        energies, rest = split_activity(activity, times)
        ledgers = {name: model.ledger(part) for name, part in {**energies, OUTSIDE: rest}.items()}
        return _parts(times, causes, {name: len(ops) for name, ops in counts.items()}, ledgers, tck)

    kinds = table(lambda r: str(r.kind))
    return StepTime(
        context,
        result.cycles,
        result.nanoseconds,
        limits.l0,
        limits.l2,
        sum(part.vector_ns for part in kinds),
        {name: cycles * tck for name, cycles in causes.items()},
        kinds,
        table(lambda r: starred(r.op)),
        kv_footprint(machine, compiled.lowered.kv, context),
        model.totals(model.ledger(activity), result.nanoseconds),
    )


def _parts(
    times: Iterable[SpanTime],
    causes: Mapping[str, float],
    counts: Mapping[str, int],
    ledgers: Mapping[str, Ledger],
    tck: float,
) -> tuple[PartTime, ...]:
    """Parts, longest first; what they leave of the step's ``causes`` is called :data:`OUTSIDE`."""
    rest = dict(causes)
    made = []
    for time in times:
        for cause in CAUSES:
            rest[cause] -= time.causes[cause]
        split = {cause: cycles * tck for cause, cycles in time.causes.items()}
        made.append(
            PartTime(
                time.label,
                counts[time.label],
                time.cycles * tck,
                time.vector_busy * tck,
                time.link_busy * tck,
                split,
                ledgers[time.label],
            )
        )
    outside = {cause: cycles * tck if abs(cycles) > 1e-6 else 0.0 for cause, cycles in rest.items()}
    made.append(PartTime(OUTSIDE, 1, sum(outside.values()), 0.0, 0.0, outside, ledgers[OUTSIDE]))
    return tuple(sorted(made, key=lambda part: -part.channel_ns))


def _memory_plan(compiled: Compiled, image_bytes: int) -> MemoryPlan:
    machine, lowered = compiled.machine, compiled.lowered
    owners = weight_owners(machine, lowered.streams, lowered.parameters)
    return MemoryPlan(
        tuple(owners),
        compiled.weight_rows,
        sum(owner.bytes for owner in owners),
        machine.organisation.rows,
        machine.organisation.capacity_bytes,
        compiled.plan.peak,
        live_peak(compiled.plan),
        machine.scratch.bytes_per_channel,
        image_bytes,
        machine.command_processor.instruction_memory_bytes,
        4 * lowered.kv.table_words,
        machine.command_processor.controller_memory_bytes,
    )
