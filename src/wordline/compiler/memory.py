"""Scratch memory plan.

Each buffer gets one offset, the same in every channel, for its lifetime in the sequential order of tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordline.compiler.integers import round_up
from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.errors import WordlineError
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class Placement:
    """``buffer`` takes ``size`` bytes from ``offset`` on, from task ``first`` to task ``last`` (their indices)."""

    buffer: ScratchBuffer
    offset: int
    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ScratchPlan:
    """Where every buffer lies; ``peak`` is the highest byte used in a channel.

    ``granule``: channel commands move whole columns, so buffers start and end on multiples of this many bytes.
    """

    placements: tuple[Placement, ...]
    peak: int
    granule: int

    def offsets(self) -> dict[ScratchBuffer, int]:
        """Bytes from the start of a channel's scratch, by buffer."""
        return {p.buffer: p.offset for p in self.placements}


def lifetimes(tasks: Sequence[Task], permanent: Sequence[ScratchBuffer]) -> dict[ScratchBuffer, tuple[int, int]]:
    """First and last task that touches each buffer; ``permanent`` ones live throughout."""
    spans: dict[ScratchBuffer, tuple[int, int]] = {buffer: (0, len(tasks)) for buffer in permanent}
    for index, task in enumerate(tasks):
        for buffer in (*task.reads, *task.writes):
            first, last = spans.get(buffer, (index, index))
            spans[buffer] = (first, max(last, index))
    return spans


SPREAD_FRACTION = 8
"""Buffers up to one part in this many of the scratch are spread out; larger ones are packed, or little would fit."""
LONG_LIFE = 50
"""Tasks: buffers that live longer are placed first, at the lowest offsets; all others go around them."""


def plan_scratch(
    machine: Machine, tasks: Sequence[Task], permanent: Sequence[ScratchBuffer] = (), *, rested: bool = True
) -> ScratchPlan:
    """Greedy by size, the largest buffers first.

    Bytes that are reused at once make one engine wait for another only because of where data lie. So small buffers go
    where the bytes rest longest before and after their lifetime; if that does not fit, or with ``rested`` false, all go
    to the lowest offset.

    Raises ``WordlineError("scratch-full")`` naming what is live where it does not fit.
    """
    spans = lifetimes(tasks, permanent)
    spread = machine.scratch.bytes_per_channel // SPREAD_FRACTION if rested else 0
    placements = _place(machine, spans, spread)
    if isinstance(placements, _NoRoom):
        placements = _place(machine, spans, 0)
    if isinstance(placements, _NoRoom):
        raise placements.error(machine, tasks)
    peak = max((p.offset + p.size for p in placements), default=0)
    ordered = tuple(sorted(placements, key=lambda p: (p.first, p.offset)))
    return ScratchPlan(ordered, peak, machine.organisation.column_bytes)


@dataclass(frozen=True, slots=True)
class _NoRoom:
    """``buffer`` of ``size`` bytes, alive from task ``first`` to ``last``, finds no room beside what is ``alive``."""

    buffer: ScratchBuffer
    size: int
    first: int
    last: int
    alive: tuple[Placement, ...]

    def error(self, machine: Machine, tasks: Sequence[Task]) -> WordlineError:
        capacity = machine.scratch.bytes_per_channel
        moments = [[p for p in self.alive if p.first <= at <= p.last] for at in range(self.first, self.last + 1)]
        together = max(moments, key=lambda live: sum(p.size for p in live))
        used = sum(p.size for p in together)
        largest = sorted(together, key=lambda p: -p.size)[:4]
        others = ", ".join(f"{p.buffer} {p.size} B" for p in largest) or "nothing else"
        return WordlineError(
            "scratch-full",
            f"{self.buffer} needs {self.size} bytes of scratch in every channel, "
            f"{capacity - used} of {capacity} are free (live with it: {others})",
            where=tasks[self.first].op if self.first < len(tasks) else self.buffer.name,
            remedy="compile for a shorter --context or a machine with more channels or scratch "
            "(scratch.bytes_per_channel)",
        )


def _place(machine: Machine, spans: dict[ScratchBuffer, tuple[int, int]], spread: int) -> list[Placement] | _NoRoom:
    """Place all buffers; those of at most ``spread`` bytes where the bytes rest longest."""
    placed: list[Placement] = []
    space = _Space(machine.scratch.bytes_per_channel, len(spans))

    def taken(buffer: ScratchBuffer) -> int:
        return round_up(buffer.bytes_per_channel, machine.organisation.column_bytes)

    def spread_out(buffer: ScratchBuffer, first: int, last: int) -> bool:
        return taken(buffer) <= spread and last - first <= LONG_LIFE

    def order(item: tuple[ScratchBuffer, tuple[int, int]]) -> tuple[int, int, tuple[int, int]]:
        buffer, (first, last) = item
        rank = 0 if last - first > LONG_LIFE else 1 + spread_out(buffer, first, last)
        return rank, -taken(buffer), (first, last)

    for buffer, (first, last) in sorted(spans.items(), key=order):
        size = taken(buffer)
        offsets, rests = space.free(size, first, last)
        if not offsets.size:
            alive = tuple(p for p in placed if p.first <= last and first <= p.last)
            return _NoRoom(buffer, size, first, last, alive)
        # argmax takes the first of equals: the lowest offset.
        offset = int(offsets[rests.argmax() if spread_out(buffer, first, last) else 0])
        space.take(offset, size, first, last)
        placed.append(Placement(buffer, offset, size, first, last))
    return placed


class _Space:
    """Which bytes are taken from which task to which, of at most ``room`` buffers."""

    def __init__(self, capacity: int, room: int) -> None:
        self._capacity = capacity
        self._begin, self._end, self._first, self._last = np.zeros((4, room), dtype=np.int64)
        self._taken = 0

    def take(self, offset: int, size: int, first: int, last: int) -> None:
        """A buffer lies at ``offset`` from task ``first`` to ``last``."""
        at = self._taken
        self._begin[at], self._end[at], self._first[at], self._last[at] = offset, offset + size, first, last
        self._taken += 1

    def free(self, size: int, first: int, last: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where ``size`` bytes are free from task ``first`` to ``last``, and how long the bytes rest there.

        Returns:
            offsets, ascending, among the start and where others end; for each the number of tasks between this lifetime
            and the nearest other use of these bytes.
        """
        begin, end, start, stop = (a[: self._taken] for a in (self._begin, self._end, self._first, self._last))
        offsets = np.unique(np.append(end, 0))
        offsets = offsets[offsets + size <= self._capacity]
        never = int(stop.max(initial=0)) + last + 1
        rest = np.where(stop < first, first - stop, start - last)
        touched = (begin < offsets[:, None] + size) & (offsets[:, None] < end)
        rests = np.where(touched, rest, never).min(axis=1, initial=never)
        return offsets[rests > 0], rests[rests > 0]
