"""What the schema of an HBM2-PIM machine has beyond the sections of every generation (meanings: docs/hbm2-pim.md).

A channel is a pseudo-channel. All ``timing`` fields are cycles of ``clock.tck_ns``.
"""

# `quantity` returns a field(), which the checker for function calls in defaults cannot see.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from wordline.machines.schema import Clock, CommandProcessor, Organisation, Refresh, Scratch, VectorPasses, quantity


@dataclass(frozen=True)
class Pim:
    """The processing block of each pair of an even and an odd bank."""

    lanes: int = quantity("count", 16, 16)
    grf_registers: int = quantity("count per file", 8, 8)
    srf_scalars: int = quantity("count per file", 8, 8)
    crf_entries: int = quantity("count per channel", 1, 32)
    reserved_row: int = quantity("row", 0, (1 << 24) - 1)


@dataclass(frozen=True)
class Timing:
    """Intervals between commands of one pseudo-channel, in cycles."""

    nBL: int = quantity("cycle", 1, 1000)
    nCL: int = quantity("cycle", 1, 1000)
    nCWL: int = quantity("cycle", 0, 1000)
    nCCDS: int = quantity("cycle", 1, 1000)
    nCCDL: int = quantity("cycle", 1, 1000)
    nRCDRD: int = quantity("cycle", 1, 1000)
    nRCDWR: int = quantity("cycle", 1, 1000)
    nRAS: int = quantity("cycle", 1, 1000)
    nRC: int = quantity("cycle", 1, 1000)
    nRP: int = quantity("cycle", 1, 1000)
    nRRDS: int = quantity("cycle", 1, 1000)
    nRRDL: int = quantity("cycle", 1, 1000)
    nRTPL: int = quantity("cycle", 1, 1000)
    nWR: int = quantity("cycle", 1, 1000)
    nWTRS: int = quantity("cycle", 0, 1000)
    nWTRL: int = quantity("cycle", 0, 1000)
    nRTW: int = quantity("cycle", 0, 1000)
    nMOD: int = quantity("cycle", 1, 1000)
    nRFC: int = quantity("cycle", 1, 100_000)
    nREFI: int = quantity("cycle", 2, 10_000_000)

    DERIVED: ClassVar[dict[str, tuple[str, str]]] = {
        "nRD_latency": ("cycle", "nCL + nBL"),
        "nWR_latency": ("cycle", "nCWL + nBL"),
        "nRD2PRE": ("cycle", "nBL + max(0, nRTPL - nCCDL)"),
        "nWR2PRE": ("cycle", "nCWL + nBL + nWR"),
        "nRD2WR": ("cycle", "max(0, nCL + nBL + nRTW - nCWL)"),
        "nWR2RDS": ("cycle", "nCWL + nBL + nWTRS"),
        "nWR2RDL": ("cycle", "nCWL + nBL + nWTRL"),
    }

    @property
    def nRD_latency(self) -> int:
        """RD issue to the end of its data on the bus."""
        return self.nCL + self.nBL

    @property
    def nWR_latency(self) -> int:
        """WR issue to the end of its data on the bus."""
        return self.nCWL + self.nBL

    @property
    def nRD2PRE(self) -> int:
        """RD -> PRE of the same bank."""
        return self.nBL + max(0, self.nRTPL - self.nCCDL)

    @property
    def nWR2PRE(self) -> int:
        """WR -> PRE of the same bank."""
        return self.nWR_latency + self.nWR

    @property
    def nRD2WR(self) -> int:
        """RD -> WR."""
        return max(0, self.nRD_latency + self.nRTW - self.nCWL)

    @property
    def nWR2RDS(self) -> int:
        """WR -> RD of another bank group."""
        return self.nWR_latency + self.nWTRS

    @property
    def nWR2RDL(self) -> int:
        """WR -> RD of the same bank group; in all-bank modes all banks count as one group."""
        return self.nWR_latency + self.nWTRL


@dataclass(frozen=True)
class Host:
    """What work on the host is charged (docs/decisions/0007-vector-streams-on-the-host.md)."""

    channel_gb_per_s: float = quantity("GB/s", 0.001, 100_000.0)
    gflop_per_s: float = quantity("GFLOP/s", 0.001, 1e9)
    call_latency_ns: float = quantity("ns", 0.0, 1e9)


#: Sections in the order of the files, reports and the hash.
SECTIONS: dict[str, type] = {
    "clock": Clock,
    "organisation": Organisation,
    "pim": Pim,
    "timing": Timing,
    "refresh": Refresh,
    "scratch": Scratch,
    "command_processor": CommandProcessor,
    "vector_unit": VectorPasses,
    "host": Host,
}


def problems(sections: Mapping[str, Any]) -> list[str]:
    """Relations between fields that do not hold."""
    organisation, pim, timing = sections["organisation"], sections["pim"], sections["timing"]
    found = []
    if organisation.column_bytes != 2 * pim.lanes:
        found.append("organisation.column_bytes must hold one fp16 for each of pim.lanes")
    if organisation.banks % 2:
        found.append("organisation.banks must be even: a block serves two banks")
    if organisation.columns < 32:
        found.append("organisation.columns must be at least 32: the reserved row has the registers at columns 0 to 31")
    if pim.reserved_row != organisation.rows - 1:
        found.append("pim.reserved_row must be the last row, organisation.rows - 1")
    if timing.nREFI <= timing.nRFC + timing.nRP:
        found.append("timing.nREFI must be longer than timing.nRFC + timing.nRP, or refresh leaves no time to work")
    if sections["vector_unit"].present:
        found.append("vector_unit.present must be false: this generation has no near-memory unit")
    return found
