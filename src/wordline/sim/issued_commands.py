"""The DRAM commands that a run issued: a long list, kept as a table of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

CHUNK = 1 << 16
"""Commands that exist as Python objects at a time while the list is gone through."""


class IssuedCommand(NamedTuple):
    """One DRAM command; ``bank``, ``row`` and ``column`` are -1 where it has none.

    ``column`` is the buffer column of WRGB and the accumulator of WRMAC16 and RDMAC16.
    """

    cycle: int
    channel: int
    command: str
    bank: int
    row: int
    column: int


class IssuedCommands(Sequence[IssuedCommand]):
    """Commands in order of cycle, then channel; each is made when it is asked for.

    A step of a large model issues tens of millions: 48 bytes each here, ten times that as objects.
    """

    def __init__(self, table: npt.NDArray[np.int64], names: Sequence[str]) -> None:
        """Take ``table`` [commands, 6]: the fields of :class:`IssuedCommand`, commands as indices into ``names``."""
        self._table, self._names = table, names

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: int) -> IssuedCommand: ...
    @overload
    def __getitem__(self, index: slice) -> IssuedCommands: ...
    def __getitem__(self, index: int | slice) -> IssuedCommand | IssuedCommands:
        if isinstance(index, slice):
            return IssuedCommands(self._table[index], self._names)
        return self._command(self._table[index].tolist())

    def __iter__(self) -> Iterator[IssuedCommand]:
        for start in range(0, len(self._table), CHUNK):
            yield from map(self._command, self._table[start : start + CHUNK].tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IssuedCommands):
            return NotImplemented
        return self._names == other._names and np.array_equal(self._table, other._table)

    __hash__ = None  # type: ignore[assignment]

    def _command(self, fields: list[int]) -> IssuedCommand:
        cycle, channel, command, bank, row, column = fields
        return IssuedCommand(cycle, channel, self._names[command], bank, row, column)
