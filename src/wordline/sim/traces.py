"""Time of programs in the trace language of the public AiM simulator (rules: ``docs/timing.md``, sections 10 and 11).

A profile says whose rules count: ``aim-simulator`` reproduces that simulator cycle for cycle, its defects included;
``corrected`` times the same commands by our own rules. All times are cycles of ``machine.clock.tck_ns``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from wordline import _native
from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.sim.critical_path import CriticalPath
from wordline.sim.timing import DRAM_COMMANDS

PROFILES: Mapping[str, type[_native.AimSimulator] | type[_native.CorrectedTraces]] = {
    "aim-simulator": _native.AimSimulator,
    "corrected": _native.CorrectedTraces,
}
"""The native model of each profile."""


class ScheduledCommand(NamedTuple):
    """One DRAM command of a schedule; ``bank`` is -1 for all banks or none, ``row`` the row that its request wants."""

    cycle: int
    channel: int
    command: str
    bank: int
    row: int


@dataclass(frozen=True)
class TraceTime:
    """What a trace takes."""

    cycles: int
    tck_ns: float
    lines: int
    """Instructions up to and including EOC."""
    channels: tuple[int, ...]
    """Channels that the trace addresses, by their number on the device."""
    simulated_channels: int
    """How many channels were simulated; the others are addressed by the same lines as one of them."""
    commands: Mapping[str, int]
    """DRAM commands by name, all channels together; what was never issued is left out."""
    open_cycles: int
    """Cycles with a row open in some bank, summed over the channels."""
    refresh_cycles: int
    """Cycles of refresh, those charged for its debt included, summed over the addressed channels."""
    schedule: tuple[ScheduledCommand, ...]
    """Every command in order of cycle, then channel; empty if it was not recorded."""
    critical_path: CriticalPath | None = None
    """If it was asked for; instructions are lines of the trace."""

    @property
    def nanoseconds(self) -> float:
        """Device time of the trace."""
        return self.cycles * self.tck_ns


class TraceModel:
    """The time of traces on one machine, by one profile."""

    def __init__(self, machine: Machine, profile: str) -> None:
        """Prepare.

        Raises:
            WordlineError: "unknown-profile", or "bad-machine" for a machine that the profile does not implement.
        """
        if profile not in PROFILES:
            raise WordlineError(
                "unknown-profile",
                f"there is no timing profile {profile!r}",
                remedy=f"choose one of {', '.join(PROFILES)}",
            )
        self.machine = machine
        self.profile = profile
        self._native = PROFILES[profile](machine.native())

    def run(
        self, text: bytes, name: str = "trace", *, record: int = 0, step_bursts: bool = False, explain: bool = False
    ) -> TraceTime:
        """Time a trace.

        Args:
            text: the trace.
            name: what errors call it.
            record: keep the schedule, of at most this many commands on the channels that are simulated; 0: do not.
            step_bursts: issue each column by itself: slower, with the same result.
            explain: find the critical path: slower, with the same result.

        Raises:
            WordlineError: "bad-trace" (with line), "trace-too-long" (for the record).
        """
        cycles, lines, addressed, simulated, commands, rows_open, refreshing, schedule, recorded = self._native.run(
            text, name, record_limit=record, step_bursts=step_bursts, explain=explain
        )
        return TraceTime(
            cycles,
            self.machine.clock.tck_ns,
            lines,
            tuple(channel for channel in range(self.machine.organisation.channels) if addressed >> channel & 1),
            simulated,
            {command: count for command, count in zip(DRAM_COMMANDS, commands, strict=True) if count},
            rows_open,
            refreshing,
            tuple(ScheduledCommand(*entry) for entry in schedule),
            None if recorded is None else CriticalPath.of(recorded, cycles, DRAM_COMMANDS),
        )


def time_trace(machine: Machine, profile: str, path: Path, *, record: int = 0, explain: bool = False) -> TraceTime:
    """Time the trace in a file, see :class:`TraceModel`. Raises ``OSError`` besides."""
    return TraceModel(machine, profile).run(path.read_bytes(), str(path), record=record, explain=explain)
