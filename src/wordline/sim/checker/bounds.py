"""The intervals of a machine, arranged by the later command, and when each earlier one was last issued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from wordline.machines import Machine
from wordline.sim.checker.commands import ALL_BANKS, COMMANDS
from wordline.sim.checker.rules import INTERVALS, Interval, Scope, cycles_of

NEVER = -(1 << 60)


class Source(NamedTuple):
    """Where the latest cycle of an earlier command is found: one of the slots of :class:`History`."""

    command: str
    slot: int


class Bound(NamedTuple):
    """A row of the table, for one later command in one bank."""

    row: Interval
    cycles: int
    sources: tuple[Source, ...]


class Limits(NamedTuple):
    """What holds one command in one bank."""

    rows: tuple[Bound, ...]
    longest: tuple[tuple[str, int, int], ...]
    """(earlier command, slot, cycles), each earlier command and slot once."""
    pitch: int
    """Cycles between two equal commands."""


@dataclass(frozen=True)
class Broken:
    """A row that does not hold: the earlier command, and the interval in cycles that there should be."""

    row: Interval
    earlier: str
    earlier_cycle: int
    required: int


class Bounds:
    """All intervals of a machine by one profile."""

    def __init__(self, machine: Machine, profile: str) -> None:
        organisation = machine.organisation
        self.banks = organisation.banks
        self.per_group = max(1, organisation.banks // organisation.bank_groups)
        self.groups = -(-self.banks // self.per_group)
        self._rows: dict[str, list[tuple[Interval, int]]] = {command: [] for command in COMMANDS}
        for row in INTERVALS[profile]:
            if row.holds(machine):
                cycles = cycles_of(row.cycles, machine)
                for later in row.later:
                    self._rows[later].append((row, cycles))
        self._limits: dict[tuple[str, int], Limits] = {}

    def limits(self, command: str, bank: int) -> Limits:
        """What holds a command in a bank, -1 for a command of all banks or none."""
        found = self._limits.get((command, bank))
        if found is None:
            found = self._limits[command, bank] = self._arrange(command, bank)
        return found

    def _arrange(self, later: str, bank: int) -> Limits:
        rows = tuple(
            Bound(row, cycles, tuple(Source(earlier, self._slot(row, earlier, later, bank)) for earlier in row.earlier))
            for row, cycles in self._rows[later]
        )
        longest: dict[Source, int] = {}
        for bound in rows:
            for source in bound.sources:
                longest[source] = max(bound.cycles, longest.get(source, 0))
        pitch = max(cycles for source, cycles in longest.items() if source.command == later)
        return Limits(rows, tuple((*source, cycles) for source, cycles in longest.items()), pitch)

    def _slot(self, row: Interval, earlier: str, later: str, bank: int) -> int:
        """Which slot holds the commands that count: a bank, a group, or all."""
        if row.scope is Scope.CHANNEL or earlier in ALL_BANKS or later in ALL_BANKS:
            return -1
        return bank if row.scope is Scope.BANK else self.banks + bank // self.per_group


class History:
    """The latest cycle of every command of one channel: by bank, by bank group behind them, and of all at the end."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.last = {command: [NEVER] * (bounds.banks + bounds.groups + 1) for command in COMMANDS}

    def issue(self, command: str, bank: int, cycle: int) -> None:
        """Remember a command."""
        slots = self.last[command]
        slots[-1] = cycle
        if bank >= 0:
            slots[bank] = slots[self._bounds.banks + bank // self._bounds.per_group] = cycle

    def earliest(self, command: str, bank: int, without: str = "") -> int:
        """The first cycle that all intervals allow, those after the command ``without`` left aside."""
        last = self.last
        return max(
            last[c][slot] + cycles for c, slot, cycles in self._bounds.limits(command, bank).longest if c != without
        )

    def broken(self, command: str, bank: int, cycle: int) -> list[Broken]:
        """Every interval that a command in this cycle would break."""
        found = []
        for row, cycles, sources in self._bounds.limits(command, bank).rows:
            at, earlier = max((self.last[source.command][source.slot], source.command) for source in sources)
            if cycle < at + cycles:
                found.append(Broken(row, earlier, at, cycles))
        return found

    def bank_of(self, command: str, cycle: int) -> int:
        """The bank of a command that was issued in this cycle, -1 if it has none."""
        banks = self.last[command][: self._bounds.banks]
        return banks.index(cycle) if cycle in banks else -1
