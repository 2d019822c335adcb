"""The schema of a machine: one frozen dataclass a section, one declared quantity a field.

Here are the sections that machines of every generation have, or that several share; what is a generation's own (banks,
timing, energy) is in the module with its name, and :mod:`wordline.machines.generations` puts them together.

A quantity states its type (the annotation), its unit and its range; the loader checks machine files against this and
nothing else. Values and their sources live in the TOML files beside this module.

Properties listed in a section's ``DERIVED`` follow from its fields by the formula given there. They are part of
``Machine.flat()`` and of the hash, cannot be set, and exist so that each formula is written once.
"""

# `quantity` returns a field(), which the checker for function calls in defaults cannot see.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

Scalar = int | float | str | bool


@dataclass(frozen=True)
class Quantity:
    """What the schema says of a field: unit, inclusive range, allowed words, the keys of a table, and whether a file
    has to say how far the figure can be trusted.
    """

    unit: str
    low: float | None = None
    high: float | None = None
    words: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    graded: bool = False


def quantity(
    unit: str,
    low: float | None = None,
    high: float | None = None,
    *,
    words: tuple[str, ...] = (),
    keys: tuple[str, ...] = (),
    graded: bool = False,
) -> Any:
    """A required dataclass field that carries its :class:`Quantity`."""
    return field(metadata={"quantity": Quantity(unit, low, high, words, keys, graded)})


class Table(Mapping[str, float]):
    """An immutable, hashable mapping from a name to a number, in the order of the schema."""

    def __init__(self, items: Mapping[str, float]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> float:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return f"Table({self._items!r})"


#: How far a graded figure can be trusted, best first (meanings: docs/energy.md).
CONFIDENCE = ("high", "medium", "low")

#: Vector functions that are evaluated by an algorithm with a stated error (see docs/numerics.md).
FUNCTIONS = ("exp", "recip", "rsqrt", "sigmoid", "tanh", "sin", "cos")


@dataclass(frozen=True)
class Clock:
    """The command clock, the only clock of device time."""

    tck_ns: float = quantity("ns", 0.01, 1000.0)


@dataclass(frozen=True)
class Organisation:
    """Channels, banks, rows and columns; a column is one access."""

    channels: int = quantity("count", 1, 1024)
    bank_groups: int = quantity("count per channel", 1, 16)
    banks: int = quantity("count per channel", 1, 64)
    rows: int = quantity("count per bank", 1, 1 << 24)
    columns: int = quantity("count per row", 1, 4096)
    column_bytes: int = quantity("byte", 2, 1024)

    DERIVED: ClassVar[dict[str, tuple[str, str]]] = {
        "row_bytes": ("byte", "columns * column_bytes"),
        "channel_bytes": ("byte", "banks * rows * columns * column_bytes"),
        "capacity_bytes": ("byte", "channels * banks * rows * columns * column_bytes"),
    }

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of one bank."""
        return self.columns * self.column_bytes

    @property
    def device_row_bytes(self) -> int:
        """Bytes of one row of every bank of every channel: what one row number stands for on the device."""
        return self.channels * self.banks * self.row_bytes

    @property
    def channel_bytes(self) -> int:
        """Bytes of DRAM behind one channel."""
        return self.banks * self.rows * self.row_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes of DRAM of the device."""
        return self.channels * self.channel_bytes


@dataclass(frozen=True)
class Refresh:
    """All-bank refresh and how far a program may move it, in intervals of nREFI."""

    enabled: bool = quantity("flag")
    pull_in: int = quantity("count", 0, 64)
    postpone: int = quantity("count", 0, 64)


@dataclass(frozen=True)
class Scratch:
    """The scratch memory of each channel, in the controller."""

    bytes_per_channel: int = quantity("byte", 32, 1 << 30)
    landing_cycles: int = quantity("cycle", 0, 1000)


@dataclass(frozen=True)
class CommandProcessor:
    """Resources of the processor that expands device programs."""

    registers: int = quantity("count per stream", 1, 256)
    loop_depth: int = quantity("count", 1, 64)
    signals: int = quantity("count", 1, 65536)
    shared_registers: int = quantity("count", 0, 65536)
    controller_memory_bytes: int = quantity("byte", 4, 1 << 32)
    instruction_memory_bytes: int = quantity("byte", 4, 1 << 32)


@dataclass(frozen=True)
class VectorPasses:
    """Whether there is a near-memory vector unit, and how large a pass of the vector stream may be."""

    present: bool = quantity("flag")
    max_operands: int = quantity("count per pass", 1, 64)
    max_ops: int = quantity("count per pass", 1, 256)
    max_scalars: int = quantity("count per pass", 0, 256)
    max_reductions: int = quantity("count per pass", 0, 64)


@dataclass(frozen=True)
class VectorUnit(VectorPasses):
    """The near-memory vector unit."""

    lanes: int = quantity("count", 1, 1024)
    latency: Table = quantity("cycle", 1, 1000, keys=(*FUNCTIONS, "other"))
    pass_overhead: int = quantity("cycle", 0, 1000)
    latency_per: str = quantity("name", words=("pass", "group"))
    ulp: Table = quantity("ulp", 0.5, 1000.0, keys=FUNCTIONS)

    def latency_of(self, op: str) -> int:
        """Cycles of one operation in a chain; operations without an entry of their own take ``latency["other"]``."""
        return int(self.latency.get(op, self.latency["other"]))


@dataclass(frozen=True)
class Link:
    """The link between host and device, or between devices."""

    lanes: int = quantity("count", 1, 1024)
    gb_per_s_per_lane: float = quantity("GB/s", 0.001, 10_000.0)
    latency_ns: float = quantity("ns", 0.0, 1e9)


@dataclass(frozen=True)
class Host:
    """What a region placed on the host is charged."""

    stream_gb_per_s: float = quantity("GB/s", 0.001, 100_000.0)
    call_latency_ns: float = quantity("ns", 0.0, 1e9)


@dataclass(frozen=True)
class Energy:
    """What events cost and what stands by costs (docs/energy.md). Zero: not accounted; its source says why.

    A milliwatt is a picojoule a nanosecond, so background power times nanoseconds is picojoules too.
    """

    activate: float = quantity("pJ per bank", 0.0, 1e6, graded=True)
    mac_column: float = quantity("pJ per bank", 0.0, 1e6, graded=True)
    ewmul_column: float = quantity("pJ per bank group", 0.0, 1e6, graded=True)
    af_column: float = quantity("pJ per bank", 0.0, 1e6, graded=True)
    column_read: float = quantity("pJ", 0.0, 1e6, graded=True)
    column_write: float = quantity("pJ", 0.0, 1e6, graded=True)
    register_read: float = quantity("pJ", 0.0, 1e6, graded=True)
    register_write: float = quantity("pJ", 0.0, 1e6, graded=True)
    buffer_read: float = quantity("pJ", 0.0, 1e6, graded=True)
    buffer_write: float = quantity("pJ", 0.0, 1e6, graded=True)
    io_bit: float = quantity("pJ per bit", 0.0, 1e3, graded=True)
    command: float = quantity("pJ", 0.0, 1e6, graded=True)
    access: float = quantity("pJ", 0.0, 1e6, graded=True)
    refresh_rows: float = quantity("row per bank", 0.0, 1e3, graded=True)
    standby_open: float = quantity("mW per channel", 0.0, 1e5, graded=True)
    standby_closed: float = quantity("mW per channel", 0.0, 1e5, graded=True)
    buffer_static: float = quantity("mW per channel", 0.0, 1e5, graded=True)
    device_static: float = quantity("mW", 0.0, 1e6, graded=True)
    vector_cycle: float = quantity("pJ per cycle", 0.0, 1e6, graded=True)
    link_bit: float = quantity("pJ per bit", 0.0, 1e3, graded=True)
