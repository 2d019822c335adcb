"""When the DRAM commands of a pseudo-channel may issue: intervals, implicit row turns, modes, refresh.

The rules are in docs/hbm2-pim.md, "Cycles"; :mod:`wordline.sim.hbm2_pim.timing` runs streams on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from wordline.isa.hbm2_pim.bank import MODE_COLUMN, MODES
from wordline.machines import Machine
from wordline.machines.hbm2_pim import Pim, Timing

SINGLE, ALL_BANK, PIM = MODES
NEVER = -(1 << 40)
CLOSED = -1

#: What a cycle is spent on.
CAUSES = ("mac", "row_turn", "refresh", "fill", "mode", "column_access", "vector", "wait", "issue")


class IssuedCommand(NamedTuple):
    """One DRAM command. ``bank`` is a bank in single-bank mode, -2 (even) or -1 (odd) for all of a parity.

    Where a command has no bank, row or column, they are None.
    """

    cycle: int
    command: str
    bank: int | None = None
    row: int | None = None
    column: int | None = None


@dataclass
class _Banks:
    """Cycles of the last commands, by bank and by bank group."""

    banks: int
    groups: int
    row: list[int] = field(init=False)
    act: list[int] = field(init=False)
    pre: list[int] = field(init=False)
    rd: list[int] = field(init=False)
    wr: list[int] = field(init=False)
    group_act: list[int] = field(init=False)
    group_rd: list[int] = field(init=False)
    group_wr: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.row = [CLOSED] * self.banks
        self.act, self.pre, self.rd, self.wr = ([NEVER] * self.banks for _ in range(4))
        self.group_act, self.group_rd, self.group_wr = ([NEVER] * self.groups for _ in range(3))


class PseudoChannelModel:
    """The DRAM side of one pseudo-channel: when commands may issue."""

    def __init__(self, machine: Machine, refresh_phase: int, trace: bool) -> None:
        organisation = machine.organisation
        self._t = machine.section("timing", Timing)
        self._refresh = machine.refresh
        self._reserved = machine.section("pim", Pim).reserved_row
        self._per_group = organisation.banks // organisation.bank_groups
        self._state = _Banks(organisation.banks, organisation.bank_groups)
        self._phase = refresh_phase
        self._hold = 0  # no command before this cycle: a mode switch or a refresh is going on
        self._hold_cause = "mode"
        self._accounted = 0
        self._keep_trace = trace
        self.mode = SINGLE
        self._bus = 0  # first cycle after the last command
        self.clock = 0  # first cycle in which the stream may issue
        self.landed = 0
        self.read_landed = 0
        self.refreshes = 0
        self.causes = dict.fromkeys(CAUSES, 0)
        self.commands: dict[str, int] = {}
        self.trace: list[IssuedCommand] = []

    # What the stream asks for.

    def slot(self) -> None:
        """An instruction that issues no command takes its slot."""
        self.clock += 1

    def wait(self, cycle: int, cause: str) -> None:
        """Nothing of the stream before ``cycle``; a refresh that falls due goes on."""
        if cycle > self.clock:
            self._charge(cycle, cause)
            self.clock = cycle

    def columns(self, kind: str, bank: int, row: int, first: int, count: int, cause: str) -> None:
        """A burst of RD or WR; in all-bank modes ``bank`` stands for its parity."""
        reached, pitch = self._reached(bank), self._t.nCCDL
        done = 0
        while done < count:
            self._open(bank, row)
            cycle, why = self._earliest_column(kind, reached, cause)
            if self._refreshed(cycle):
                continue
            burst = count - done
            if self._refresh.enabled:
                burst = min(burst, -((cycle - self._due()) // pitch))
            last = cycle + (burst - 1) * pitch
            self._charge(cycle, why)
            self._charge(last, cause)
            self._count(kind, burst)
            if self._keep_trace:
                self.trace += [
                    IssuedCommand(cycle + i * pitch, kind, self._name(bank), row, first + done + i)
                    for i in range(burst)
                ]
            times, groups = (
                (self._state.rd, self._state.group_rd) if kind == "RD" else (self._state.wr, self._state.group_wr)
            )
            for number in reached:
                times[number] = last
                groups[number // self._per_group] = last
            latency = self._t.nRD_latency if kind == "RD" else self._t.nWR_latency
            self.landed = max(self.landed, last + latency)
            if kind == "RD":
                self.read_landed = last + latency
            self.clock = self._bus = last + 1
            done += burst

    def activate(self, bank: int, row: int) -> None:
        """Open a row ahead of use; nothing but the slot if it is open."""
        before = self.clock
        self._open(bank, row)
        if self.clock == before:
            self.slot()

    def precharge(self, bank: int | None) -> None:
        """Close a bank, or all; nothing but the slot if all is closed."""
        before = self.clock
        self._close(range(self._state.banks) if bank is None else self._reached(bank), bank)
        if self.clock == before:
            self.slot()

    def refresh(self, late: bool) -> None:
        """REF of the program, if the debt allows it."""
        debt = (self.clock + self._phase) // self._t.nREFI - self.refreshes
        limit = self._refresh.postpone if late else 1 - self._refresh.pull_in
        if self._refresh.enabled and debt >= limit:
            self._issue_refresh(self.clock)
            self.clock = max(self.clock, self.last_refresh + 1)
        else:
            self.slot()

    def set_mode(self, mode: str, parity: int) -> None:
        """Change the mode, one step after the other."""
        if mode == self.mode and mode != PIM:
            self.slot()
            return
        if mode == SINGLE:
            if self.mode == PIM:
                self._step(ALL_BANK, parity)
            self._leave()
            return
        if self.mode == SINGLE:
            self._enter()
        if mode == PIM or self.mode == PIM:
            self._step(mode, parity)

    def finish(self) -> int:
        """Cycle after the last effect; a refresh or a mode switch in progress is waited for."""
        end = max(self.clock, self.landed)
        while self._refresh.enabled and self._due() < end:
            self._issue_refresh(self._due())
            end = max(end, self._hold)
        self._charge(end, "column_access")
        self._charge(self._hold, self._hold_cause)
        return max(end, self._hold)

    def refresh_charge(self, end: int) -> int:
        """nRFC for the debt that is left, beyond what the phase brought along, to the nearest cycle."""
        if not self._refresh.enabled:
            return 0
        return round(self._t.nRFC * (end / self._t.nREFI - self.refreshes))

    # Modes.

    def _step(self, mode: str, parity: int) -> None:
        """Between all-bank and PIM mode: one write of the mode's column."""
        self.columns("WR", parity, self._reserved, MODE_COLUMN, 1, "mode")
        self.mode = mode

    def _enter(self) -> None:
        """Single-bank to all-bank mode: the reserved row of one bank in each group is opened, and all is closed."""
        self._close(range(self._state.banks), None)
        for group in range(self._state.groups):
            self._issue_activate(group * self._per_group, self._reserved, "mode")
        self._close(range(self._state.banks), None, "mode", refresh=False)
        self._settle(ALL_BANK)

    def _leave(self) -> None:
        """All-bank to single-bank mode: the reserved row is opened in both parities, and all is closed."""
        self._close(range(self._state.banks), None)
        for parity in (0, 1):
            self._issue_activate(parity, self._reserved, "mode")
        self._close(range(self._state.banks), None, "mode", refresh=False)
        self._settle(SINGLE)

    def _settle(self, mode: str) -> None:
        self.mode = mode
        self._hold, self._hold_cause = self.clock - 1 + self._t.nMOD, "mode"

    # Single commands.

    def _reached(self, bank: int) -> range:
        return range(bank, bank + 1) if self.mode == SINGLE else range(bank % 2, self._state.banks, 2)

    def _name(self, bank: int | None) -> int | None:
        return bank if bank is None or self.mode == SINGLE else bank % 2 - 2

    def _open(self, bank: int, row: int) -> None:
        state, reached = self._state, self._reached(bank)
        while any(state.row[number] != row for number in reached):
            if any(state.row[number] not in (row, CLOSED) for number in reached):
                self._close(reached, bank)
                continue
            self._issue_activate(bank, row)

    def _issue_activate(self, bank: int, row: int, cause: str = "row_turn") -> None:
        """ACT at its earliest; returns without if a refresh came first, unless it is part of a mode switch."""
        state, t, reached = self._state, self._t, self._reached(bank)
        cycle, why = self._start(cause)
        for number in reached:
            cycle = max(cycle, state.pre[number] + t.nRP, state.act[number] + t.nRC)
        same = {number // self._per_group for number in reached}
        for group, last in enumerate(state.group_act):
            cycle = max(cycle, last + (t.nRRDL if group in same or self.mode != SINGLE else t.nRRDS))
        if cause != "mode" and self._refreshed(cycle):
            return
        self._issue("ACT", cycle, why if cycle == self._start(cause)[0] else cause, bank, row)
        for number in reached:
            state.act[number], state.row[number] = cycle, row
        for group in same:
            state.group_act[group] = cycle

    def _close(self, numbers: range, bank: int | None, cause: str = "row_turn", refresh: bool = True) -> None:
        """PRE or PREA at its earliest, if any of the banks is open."""
        state = self._state
        while any(state.row[number] != CLOSED for number in numbers):
            cycle, why = self._start(cause)
            ready = self._earliest_precharge(numbers)
            if ready > cycle:
                cycle, why = ready, cause
            if refresh and self._refreshed(cycle):
                continue
            self._issue("PREA" if bank is None else "PRE", cycle, why, bank)
            for number in numbers:
                state.pre[number], state.row[number] = cycle, CLOSED

    def _earliest_precharge(self, numbers: range) -> int:
        state, t = self._state, self._t
        return max(
            (
                max(state.act[n] + t.nRAS, state.rd[n] + t.nRD2PRE, state.wr[n] + t.nWR2PRE)
                for n in numbers
                if state.row[n] != CLOSED
            ),
            default=NEVER,
        )

    def _earliest_column(self, kind: str, reached: range, cause: str) -> tuple[int, str]:
        state, t = self._state, self._t
        cycle, why = self._start(cause)
        opened = max(state.act[n] for n in reached) + (t.nRCDRD if kind == "RD" else t.nRCDWR)
        if opened > cycle:
            cycle, why = opened, "row_turn"
        if kind == "RD":
            gaps = ((state.group_rd, t.nCCDS, t.nCCDL), (state.group_wr, t.nWR2RDS, t.nWR2RDL))
        else:
            gaps = ((state.group_wr, t.nCCDS, t.nCCDL), (state.group_rd, t.nRD2WR, t.nRD2WR))
        same = {number // self._per_group for number in reached}
        for times, short, long in gaps:
            for group, last in enumerate(times):
                ready = last + (long if group in same or self.mode != SINGLE else short)
                if ready > cycle:
                    cycle, why = ready, cause
        return cycle, why

    def _start(self, cause: str) -> tuple[int, str]:
        """First cycle that the stream and what holds the channel allow, and what it is charged to."""
        if self._hold > self.clock:
            return self._hold, self._hold_cause
        return self.clock, cause if self.clock <= self._accounted + 1 else "issue"

    def _issue(self, command: str, cycle: int, why: str, bank: int | None = None, row: int | None = None) -> None:
        self._charge(cycle, why)
        self._count(command, 1)
        if self._keep_trace:
            self.trace.append(IssuedCommand(cycle, command, self._name(bank), row))
        self.clock = self._bus = cycle + 1

    def _charge(self, cycle: int, cause: str) -> None:
        """Charge the cycles up to ``cycle`` that nothing has been charged for."""
        if cycle > self._accounted:
            self.causes[cause] += cycle - self._accounted
            self._accounted = cycle

    def _count(self, command: str, times: int) -> None:
        self.commands[command] = self.commands.get(command, 0) + times

    # Refresh.

    def _due(self) -> int:
        """The cycle in which the debt exceeds what may be postponed."""
        return (self.refreshes + self._refresh.postpone + 1) * self._t.nREFI - self._phase

    def _refreshed(self, cycle: int) -> bool:
        """Whether a refresh is due by ``cycle``; it has then been issued."""
        if not self._refresh.enabled or cycle < self._due():
            return False
        self._issue_refresh(max(self._due(), 0))
        return True

    def _issue_refresh(self, earliest: int) -> None:
        state, t = self._state, self._t
        clock = self.clock
        self.clock = max(self._bus, earliest)  # instructions that issue no command do not hold it up
        self._close(range(state.banks), None, "refresh", refresh=False)
        cycle = max(self._start("refresh")[0], *(pre + t.nRP for pre in state.pre), *(act + t.nRC for act in state.act))
        self._issue("REF", cycle, "refresh")
        self.refreshes += 1
        self.last_refresh = cycle
        self._hold, self._hold_cause = cycle + t.nRFC, "refresh"
        self.clock = clock
