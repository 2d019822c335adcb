"""Who owns which words of controller memory and which DRAM rows."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from wordline.errors import WordlineError


@dataclass
class RangeAllocator:
    """First-fit allocation from ``[0, size)``; ``unit`` is what errors count in."""

    size: int
    unit: str
    _used: list[tuple[int, int]] = field(default_factory=list)  # (first, end), ascending

    def allocate(self, count: int) -> int:
        """The first of ``count`` free units in a row. Raises ``WordlineError("out-of-device-memory")``."""
        start = 0
        for index, (first, end) in enumerate([*self._used, (self.size, self.size)]):
            if first - start >= count:
                self._used.insert(index, (start, start + count))
                return start
            start = end
        used = sum(end - first for first, end in self._used)
        raise WordlineError(
            "out-of-device-memory",
            f"{count} {self.unit} in a row are needed, {self.size - used} of {self.size} are free",
            remedy="close sessions, or use a machine with more of them",
        )

    def free(self, first: int) -> None:
        """Give back what :meth:`allocate` returned as ``first``."""
        index = bisect.bisect_left(self._used, (first, 0))
        if index == len(self._used) or self._used[index][0] != first:
            raise ValueError(f"{self.unit} {first} is not the start of an allocation")
        del self._used[index]


class PagePool:
    """KV pages: groups of ``rows_per_page`` DRAM rows of one channel, between ``first_row`` and the last row."""

    def __init__(self, channels: int, first_row: int, rows: int, rows_per_page: int) -> None:
        self.rows_per_page = rows_per_page
        starts = range(first_row, rows - rows_per_page + 1, rows_per_page)
        self.pages_per_channel = len(starts)
        # Popped from the end: low rows first, so that pages taken together are neighbours and are zeroed in one go.
        self._free = [list(reversed(starts)) for _ in range(channels)]

    def free_pages(self, channel: int) -> int:
        """Pages left on a channel."""
        return len(self._free[channel])

    def allocate(self, counts: Sequence[int]) -> list[list[int]]:
        """First rows of ``counts[channel]`` pages on each channel; all or nothing.

        Raises:
            WordlineError: "out-of-device-memory".
        """
        for channel, count in enumerate(counts):
            if count > len(self._free[channel]):
                raise WordlineError(
                    "out-of-device-memory",
                    f"{count} more KV pages are needed on channel {channel}, {len(self._free[channel])} of "
                    f"{self.pages_per_channel} are free",
                    remedy="close other sessions, generate less, or use a machine with more memory",
                )
        return [[free.pop() for _ in range(count)] for free, count in zip(self._free, counts, strict=True)]

    def free(self, pages: Iterable[tuple[int, int]]) -> None:
        """Give back pages, each as (channel, first row)."""
        for channel, row in pages:
            self._free[channel].append(row)


def row_ranges(rows: Iterable[int], size: int) -> list[tuple[int, int]]:
    """Merge pages of ``size`` rows that follow each other: (first row, number of rows), ascending."""
    ranges: list[tuple[int, int]] = []
    for row in sorted(rows):
        if ranges and sum(ranges[-1]) == row:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
        else:
            ranges.append((row, size))
    return ranges
