"""Signals and waits between engines, from what their tasks read and write in scratch.

Each engine that others depend on has one signal and raises it after each task that somebody waits for; a waiting task
names the count. A dependence that an earlier wait of the same engine already covers, directly or through another
engine, needs no wait of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wordline.compiler.integers import ceil_div
from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.compiler.memory import ScratchPlan
from wordline.isa.declare import Engine


@dataclass(frozen=True, slots=True)
class Wait:
    """Hold until the engine's signal has reached ``count``."""

    engine: Engine
    count: int


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """``waits[i]`` come before the body of task i; ``signals[i]``: the task's engine signals after it."""

    waits: tuple[tuple[Wait, ...], ...]
    signals: tuple[bool, ...]


def synchronise(
    tasks: Sequence[Task], plan: ScratchPlan, *, overlap: bool = True, implied: bool = True
) -> Synchronisation:
    """The signals and waits that make every interleaving of the engines equal to the sequential order of ``tasks``.

    ``overlap``: engines run ahead of each other; if not, a task waits for all before it. ``implied``: waits that others
    imply are left out.
    """
    dependences = _dependences(tasks, plan)
    if not overlap:
        for index in range(1, len(tasks)):
            if tasks[index - 1].engine is not tasks[index].engine:
                dependences[index] = sorted({*dependences[index], index - 1})
    needed, signalled = _reduce(tasks, dependences, implied)
    counts: dict[int, int] = {}
    totals = dict.fromkeys(Engine, 0)
    for index, task in enumerate(tasks):
        if index in signalled:
            totals[task.engine] += 1
            counts[index] = totals[task.engine]
    waits = tuple(
        tuple(Wait(tasks[source].engine, counts[source]) for source in needed[index]) for index in range(len(tasks))
    )
    return Synchronisation(waits, tuple(index in signalled for index in range(len(tasks))))


def _dependences(tasks: Sequence[Task], plan: ScratchPlan) -> list[list[int]]:
    """For each task the latest earlier task of each engine that must have taken effect before it."""
    offsets = plan.offsets()

    def touched(buffer: ScratchBuffer, part: int, parts: int) -> slice:
        return _span(offsets[buffer], buffer.bytes_per_channel, plan.granule, part, parts)

    granules = ceil_div(plan.peak, plan.granule) + 1
    engines = {engine: position for position, engine in enumerate(Engine)}
    writer = np.full(granules, -1)
    readers = np.full((len(engines), granules), -1)
    owner = np.array([engines[task.engine] for task in tasks])
    result: list[list[int]] = []
    for index, task in enumerate(tasks):
        found: set[int] = set()
        shares = {share.buffer: (share.part, share.parts) for share in task.shares}
        read = [touched(b, *shares.get(b, WHOLE)) for b in task.reads]
        written = [touched(b, *shares.get(b, WHOLE)) for b in task.writes]
        produced = {int(w) for span in read for w in np.unique(writer[span])}
        for span in written:
            found.update(int(w) for w in np.unique(writer[span]))
            found.update(int(r) for r in np.unique(readers[:, span]))
        # An engine keeps its own order, except that what a channel reads from its banks lands in scratch after it
        # issued.
        own = engines[task.engine]
        found = {source for source in found if owner[source] != own}
        found |= {source for source in produced if owner[source] != own or task.engine is Engine.CHANNEL}
        latest: dict[int, int] = {}
        for source in found - {-1}:
            engine = int(owner[source])
            latest[engine] = max(latest.get(engine, -1), source)
        result.append(sorted(latest.values()))
        for span in read:
            readers[own, span] = index
        for span in written:
            writer[span] = index
            readers[:, span] = -1
    return result


WHOLE = (0, 1)
"""The part of a buffer, and the number of its parts, that stand for all of it."""


def _span(offset: int, size: int, granule: int, part: int, parts: int) -> slice:
    """Granules of a buffer; a part, wherever its bytes really are, stands for its share of them, at least one."""
    first, end = offset // granule, ceil_div(offset + size, granule)
    begin = first + (end - first) * part // parts
    return slice(begin, max(begin + 1, first + (end - first) * (part + 1) // parts))


def _reduce(tasks: Sequence[Task], dependences: list[list[int]], implied: bool) -> tuple[list[list[int]], set[int]]:
    """Dependences, if ``implied`` without those that earlier waits imply, and the tasks that must signal."""
    known: dict[Engine, dict[Engine, int]] = {engine: dict.fromkeys(Engine, -1) for engine in Engine}
    after: list[dict[Engine, int]] = []
    needed: list[list[int]] = []
    signalled: set[int] = set()
    for index, task in enumerate(tasks):
        mine = known[task.engine]
        kept = []
        for source in sorted(dependences[index], reverse=True):
            engine = tasks[source].engine
            if implied and mine[engine] >= source:
                continue
            kept.append(source)
            signalled.add(source)
            for other, progress in after[source].items():
                mine[other] = max(mine[other], progress)
            mine[engine] = max(mine[engine], source)
        needed.append(kept)
        snapshot = dict(mine)
        # In-order engines have finished everything before `index` once its signal is out.
        snapshot[task.engine] = index
        after.append(snapshot)
    return needed, signalled
