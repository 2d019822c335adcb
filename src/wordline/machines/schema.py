"""The schema of a machine: one frozen dataclass a section, one declared quantity a field.

A quantity states its type (the annotation), its unit and its range; the loader checks machine files against this and
nothing else. Values and their sources live in the TOML files beside this module. All ``timing`` fields are cycles of
``clock.tck_ns``.

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
class BankUnit:
    """The processing unit of each bank."""

    lanes: int = quantity("count", 1, 256)
    accumulators: int = quantity("count per bank", 1, 1024)
    readout: str = quantity("format", words=("bf16", "fp32"))
    mac_sum: str = quantity("name", words=("fp32_tree",))
    mac_from_zero: bool = quantity("flag")
    weight_formats: tuple[str, ...] = quantity("format", words=("bf16",))


@dataclass(frozen=True)
class Buffer:
    """The global buffer of a channel, which feeds the vector operand to all banks."""

    columns: int = quantity("count", 1, 4096)


@dataclass(frozen=True)
class Timing:
    """Intervals between commands of one channel, in cycles (profile ``corrected``)."""

    nBL: int = quantity("cycle", 1, 1000)
    nCL: int = quantity("cycle", 1, 1000)
    nCWL: int = quantity("cycle", 0, 1000)
    nCLREG: int = quantity("cycle", 0, 1000)
    nCWLREG: int = quantity("cycle", 0, 1000)
    nCWLGB: int = quantity("cycle", 0, 1000)
    nRCDRD: int = quantity("cycle", 1, 1000)
    nRCDRDMAC: int = quantity("cycle", 1, 1000)
    nRCDEWMUL: int = quantity("cycle", 1, 1000)
    nRCDRDAF: int = quantity("cycle", 1, 1000)
    nRCDRDCP: int = quantity("cycle", 1, 1000)
    nRCDWR: int = quantity("cycle", 1, 1000)
    nRCDWRCP: int = quantity("cycle", 1, 1000)
    nRP: int = quantity("cycle", 1, 1000)
    nRAS: int = quantity("cycle", 1, 1000)
    nRC: int = quantity("cycle", 1, 1000)
    nWR: int = quantity("cycle", 1, 1000)
    nRTP: int = quantity("cycle", 1, 1000)
    nCCDS: int = quantity("cycle", 1, 1000)
    nCCDL: int = quantity("cycle", 1, 1000)
    nRRDS: int = quantity("cycle", 1, 1000)
    nRRDL: int = quantity("cycle", 1, 1000)
    nFAW: int = quantity("cycle", 1, 1000)
    nWTRS: int = quantity("cycle", 0, 1000)
    nWTRL: int = quantity("cycle", 0, 1000)
    nRTW: int = quantity("cycle", 0, 1000)
    nWPRE: int = quantity("cycle", 0, 1000)
    nRFC: int = quantity("cycle", 1, 100_000)
    nREFI: int = quantity("cycle", 2, 10_000_000)
    nMODCH: int = quantity("cycle", 1, 1000)
    nMAC2TMOD: int = quantity("cycle", 1, 1000)
    nCMD2TMOD: int = quantity("cycle", 1, 1000)

    DERIVED: ClassVar[dict[str, tuple[str, str]]] = {
        "nRD_latency": ("cycle", "nCL + nBL"),
        "nRDMAC_latency": ("cycle", "nCLREG + nBL"),
        "nWR_latency": ("cycle", "nCWL + nBL"),
        "nWRMAC_latency": ("cycle", "nCWLREG + nBL"),
        "nWRGB_latency": ("cycle", "nCWLGB + nBL"),
        "nWR2RDS": ("cycle", "nCWL + nBL + nWTRS"),
        "nWR2RDL": ("cycle", "nCWL + nBL + nWTRL"),
        "nWR2RDMAC": ("cycle", "nCWL + nBL + nWTRL"),
        "nWRA2RD": ("cycle", "nCWL + nBL + nWTRL"),
        "nWRGB2RDMAC": ("cycle", "nCWLGB + nBL + nWTRS"),
        "nWRMAC2RDMAC": ("cycle", "nCWLREG + nBL + nWTRL"),
        "nRD2WR": ("cycle", "max(0, nCL + nBL + nRTW + nWPRE - nCWL)"),
        "nRD2WRGB": ("cycle", "max(0, nCL + nBL + nRTW + nWPRE - nCWLGB)"),
        "nRD2WRMAC": ("cycle", "max(0, nCL + nBL + nRTW + nWPRE - nCWLREG)"),
        "nRDMAC2WR": ("cycle", "max(0, nCLREG + nBL + nRTW + nWPRE - nCWL)"),
        "nRDMAC2WRGB": ("cycle", "max(0, nCLREG + nBL + nRTW + nWPRE - nCWLGB)"),
        "nRDMAC2WRMAC": ("cycle", "max(0, nCLREG + nBL + nRTW + nWPRE - nCWLREG)"),
        "nWR2MAC": ("cycle", "nCWL + nBL + nWTRL"),
        "nRDCP2MAC": ("cycle", "nCL + nBL"),
        "nWR2PRE": ("cycle", "nCWL + nBL + nWR"),
        "nEWMUL2PRE": ("cycle", "nCWL + nWR"),
        "nWRA2ACT": ("cycle", "nCWL + nBL + nWR + nRP"),
        "nWRA_latency": ("cycle", "nCWL + nBL + nRP"),
    }

    @property
    def nRD_latency(self) -> int:
        """RD issue to data at the controller."""
        return self.nCL + self.nBL

    @property
    def nRDMAC_latency(self) -> int:
        """RDMAC16 or RDAF16 issue to data at the controller."""
        return self.nCLREG + self.nBL

    @property
    def nWR_latency(self) -> int:
        """WR issue to the end of its data on the bus."""
        return self.nCWL + self.nBL

    @property
    def nWRMAC_latency(self) -> int:
        """WRMAC16 issue to the end of its data on the bus."""
        return self.nCWLREG + self.nBL

    @property
    def nWRGB_latency(self) -> int:
        """WRGB issue to the end of its data on the bus."""
        return self.nCWLGB + self.nBL

    @property
    def nWR2RDS(self) -> int:
        """WR -> RD of another bank group."""
        return self.nWR_latency + self.nWTRS

    @property
    def nWR2RDL(self) -> int:
        """WR -> RD of the same bank group."""
        return self.nWR_latency + self.nWTRL

    @property
    def nWR2RDMAC(self) -> int:
        """WR -> RDMAC16, RDAF16."""
        return self.nWR_latency + self.nWTRL

    @property
    def nWRA2RD(self) -> int:
        """WRA16 -> RD, RDMAC16, RDAF16."""
        return self.nWR_latency + self.nWTRL

    @property
    def nWRGB2RDMAC(self) -> int:
        """WRGB -> RD, RDMAC16, RDAF16."""
        return self.nWRGB_latency + self.nWTRS

    @property
    def nWRMAC2RDMAC(self) -> int:
        """WRMAC16 -> RD, RDMAC16, RDAF16."""
        return self.nWRMAC_latency + self.nWTRL

    @property
    def nRD2WR(self) -> int:
        """RD -> WR, WRA16."""
        return max(0, self.nRD_latency + self.nRTW + self.nWPRE - self.nCWL)

    @property
    def nRD2WRGB(self) -> int:
        """RD -> WRGB."""
        return max(0, self.nRD_latency + self.nRTW + self.nWPRE - self.nCWLGB)

    @property
    def nRD2WRMAC(self) -> int:
        """RD -> WRMAC16."""
        return max(0, self.nRD_latency + self.nRTW + self.nWPRE - self.nCWLREG)

    @property
    def nRDMAC2WR(self) -> int:
        """RDMAC16, RDAF16 -> WR, WRA16; zero means no constraint."""
        return max(0, self.nRDMAC_latency + self.nRTW + self.nWPRE - self.nCWL)

    @property
    def nRDMAC2WRGB(self) -> int:
        """RDMAC16, RDAF16 -> WRGB."""
        return max(0, self.nRDMAC_latency + self.nRTW + self.nWPRE - self.nCWLGB)

    @property
    def nRDMAC2WRMAC(self) -> int:
        """RDMAC16, RDAF16 -> WRMAC16."""
        return max(0, self.nRDMAC_latency + self.nRTW + self.nWPRE - self.nCWLREG)

    @property
    def nWR2MAC(self) -> int:
        """WR, WRCP -> MAC, MAC16, RDCP: the written column is read by a bank unit, as WR -> RD of one bank group."""
        return self.nWR_latency + self.nWTRL

    @property
    def nRDCP2MAC(self) -> int:
        """RDCP -> MAC, MAC16, WRCP: the copied column must have landed in the buffer."""
        return self.nRD_latency

    @property
    def nWR2PRE(self) -> int:
        """WR, WRCP -> PRE, PREA."""
        return self.nWR_latency + self.nWR

    @property
    def nEWMUL2PRE(self) -> int:
        """EWMUL16 -> PRE, PREA."""
        return self.nCWL + self.nWR

    @property
    def nWRA2ACT(self) -> int:
        """WRA16 (precharges by itself) -> ACT, ACT16."""
        return self.nWR2PRE + self.nRP

    @property
    def nWRA_latency(self) -> int:
        """WRA16 issue to when the published simulator counts it as done."""
        return self.nWR_latency + self.nRP


@dataclass(frozen=True)
class Rules:
    """Program rules that a later generation may relax."""

    row_commands_in_register_mode: bool = quantity("flag")
    commands_during_refresh: bool = quantity("flag")
    faw_enforced: bool = quantity("flag")
    row_buffers: int = quantity("count per bank", 1, 2)
    buffer_halves: int = quantity("count per channel", 1, 2)


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
class VectorUnit:
    """The near-memory vector unit."""

    present: bool = quantity("flag")
    lanes: int = quantity("count", 1, 1024)
    max_operands: int = quantity("count per pass", 1, 64)
    max_ops: int = quantity("count per pass", 1, 256)
    max_scalars: int = quantity("count per pass", 0, 256)
    max_reductions: int = quantity("count per pass", 0, 64)
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


@dataclass(frozen=True)
class AimSimulator:
    """Profile ``aim-simulator``: where the published simulator differs from ``timing`` and ``rules`` (docs/timing.md).

    Flags that are true reproduce it; false is what the rule says without its defect.
    """

    nRRDS: int = quantity("cycle", 1, 1000)
    nRRDL: int = quantity("cycle", 1, 1000)
    queue_requests: int = quantity("count", 1, 1 << 20)
    writes_to_start: float = quantity("count", 0.0, 1e6)
    writes_to_stop: float = quantity("count", 0.0, 1e6)
    lut_row: int = quantity("row", 0, 1 << 30)
    refresh: bool = quantity("flag")
    blocking_reads: bool = quantity("flag")
    read_forwarding: bool = quantity("flag")
    overtaking: bool = quantity("flag")
    reversed_mask: bool = quantity("flag")


@dataclass(frozen=True)
class Host:
    """What a region placed on the host is charged."""

    stream_gb_per_s: float = quantity("GB/s", 0.001, 100_000.0)
    call_latency_ns: float = quantity("ns", 0.0, 1e9)


#: Sections in the order of the files, reports and the hash.
SECTIONS: dict[str, type] = {
    "clock": Clock,
    "organisation": Organisation,
    "bank_unit": BankUnit,
    "buffer": Buffer,
    "timing": Timing,
    "rules": Rules,
    "refresh": Refresh,
    "scratch": Scratch,
    "command_processor": CommandProcessor,
    "vector_unit": VectorUnit,
    "link": Link,
    "energy": Energy,
    "host": Host,
    "aim_simulator": AimSimulator,
}
