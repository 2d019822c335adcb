"""Scratch memory plan.

Each buffer gets one offset, the same in every channel, for its lifetime in the sequential order of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.errors import WordlineError
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class Placement:
    """``buffer`` lies at ``offset`` from task ``first`` to task ``last`` (indices into the task list)."""

    buffer: ScratchBuffer
    offset: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ScratchPlan:
    """Where every buffer lies; ``peak`` is the highest byte used in a channel."""

    placements: tuple[Placement, ...]
    peak: int

    def offsets(self) -> dict[ScratchBuffer, int]:
        return {p.buffer: p.offset for p in self.placements}


def lifetimes(tasks: Sequence[Task], permanent: Sequence[ScratchBuffer]) -> dict[ScratchBuffer, tuple[int, int]]:
    """First and last task that touches each buffer; ``permanent`` ones live throughout."""
    spans: dict[ScratchBuffer, tuple[int, int]] = {buffer: (0, len(tasks)) for buffer in permanent}
    for index, task in enumerate(tasks):
        for buffer in (*task.reads, *task.writes):
            first, last = spans.get(buffer, (index, index))
            spans[buffer] = (first, max(last, index))
    return spans


def plan_scratch(machine: Machine, tasks: Sequence[Task], permanent: Sequence[ScratchBuffer] = ()) -> ScratchPlan:
    """Greedy by size: the largest buffers first, each at the lowest offset that is free during its lifetime.

    Raises ``WordlineError("scratch-full")`` naming what is live where it does not fit.
    """
    spans = lifetimes(tasks, permanent)
    placed: list[Placement] = []
    capacity = machine.scratch.bytes_per_channel
    for buffer, (first, last) in sorted(spans.items(), key=lambda item: (-item[0].bytes_per_channel, item[1])):
        alive = sorted((p for p in placed if p.first <= last and first <= p.last), key=lambda p: p.offset)
        offset = 0
        for other in alive:
            if other.offset - offset >= buffer.bytes_per_channel:
                break
            offset = max(offset, other.offset + other.buffer.bytes_per_channel)
        if offset + buffer.bytes_per_channel > capacity:
            largest = sorted((*alive,), key=lambda p: -p.buffer.bytes_per_channel)[:4]
            others = ", ".join(f"{p.buffer} {p.buffer.bytes_per_channel} B" for p in largest) or "nothing else"
            raise WordlineError(
                "scratch-full",
                f"{buffer} needs {buffer.bytes_per_channel} bytes of scratch in every channel, "
                f"{capacity - offset} of {capacity} are free (live with it: {others})",
                where=tasks[first].op if first < len(tasks) else buffer.name,
                remedy="compile for a shorter --context or a machine with more channels or scratch "
                "(scratch.bytes_per_channel)",
            )
        placed.append(Placement(buffer, offset, first, last))
    peak = max((p.offset + p.buffer.bytes_per_channel for p in placed), default=0)
    return ScratchPlan(tuple(sorted(placed, key=lambda p: (p.first, p.offset))), peak)
