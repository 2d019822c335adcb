"""What the schema of a GDDR6-AiM machine has beyond the sections of every generation.

All ``timing`` fields are cycles of ``clock.tck_ns``.
"""

# `quantity` returns a field(), which the checker for function calls in defaults cannot see.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from wordline.machines.schema import (
    Clock,
    CommandProcessor,
    Energy,
    Host,
    Link,
    Organisation,
    Refresh,
    Scratch,
    VectorUnit,
    quantity,
)


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


def problems(sections: Mapping[str, Any]) -> list[str]:
    """Relations between fields that do not hold."""
    organisation, bank_unit, timing = sections["organisation"], sections["bank_unit"], sections["timing"]
    simulator = sections["aim_simulator"]
    found = []
    if organisation.column_bytes != 2 * bank_unit.lanes:
        found.append("organisation.column_bytes must hold one bf16 for each of bank_unit.lanes")
    if timing.nREFI <= timing.nRFC + timing.nRP:
        found.append("timing.nREFI must be longer than timing.nRFC + timing.nRP, or refresh leaves no time to work")
    if simulator.writes_to_stop > simulator.writes_to_start:
        found.append("aim_simulator.writes_to_stop must not exceed aim_simulator.writes_to_start")
    return found
