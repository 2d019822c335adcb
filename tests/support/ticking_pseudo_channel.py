"""A pseudo-channel that ticks through every cycle and asks of every pair of commands whether their gap is kept.

Written from docs/hbm2-pim.md, "Cycles", apart from ``wordline.sim.hbm2_pim``: it keeps the whole history and no other
state than open rows, mode and refresh debt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wordline.isa.instruction import Instr, evaluate
from wordline.machines import Machine
from wordline.machines.hbm2_pim import Timing

RESERVED_COLUMNS = {"WRCRF": 0, "WRSRF": 4, "WRGRF": 8, "MODE": 24}


@dataclass(frozen=True)
class Issued:
    cycle: int
    command: str
    banks: frozenset[int]
    row: int | None = None
    column: int | None = None
    wide: bool = False
    settles: bool = False


class TickingPseudoChannel:
    """``run`` gives the commands and the cycle after the last effect."""

    def __init__(self, machine: Machine, refresh_phase: int = 0) -> None:
        self.t = machine.section("timing", Timing)
        self.refresh = machine.refresh
        self.banks = machine.organisation.banks
        self.per_group = self.banks // machine.organisation.bank_groups
        self.reserved = machine.organisation.rows - 1
        self.phase = refresh_phase
        self.rows: dict[int, int] = {}
        self.history: list[Issued] = []
        self.refreshes = 0
        self.mode = "single"
        self.cycle = 0

    def run(self, instrs: list[Instr]) -> tuple[list[Issued], int]:
        self.registers = [0] * 32
        self.block(instrs, 0, len(instrs))
        end = self.cycle
        for past in self.history:
            end = max(end, past.cycle + 1)
            if past.command == "RD":
                end = max(end, past.cycle + self.t.nCL + self.t.nBL)
            if past.command == "WR":
                end = max(end, past.cycle + self.t.nCWL + self.t.nBL)
        while self.refresh.enabled and self.due() < end:
            self.cycle = max(self.cycle, self.due())
            while not self.refresh_step():
                self.cycle += 1
            end = max(end, self.history[-1].cycle + self.t.nRFC)
        for past in self.history:
            if past.command == "REF":
                end = max(end, past.cycle + self.t.nRFC)
            if past.settles:
                end = max(end, past.cycle + self.t.nMOD)
        return self.history, end

    def block(self, instrs: list[Instr], first: int, end: int) -> None:
        at = first
        while at < end:
            instr = instrs[at]
            o = evaluate(instr, self.registers)
            if instr.name == "LOOP":
                self.idle()
                for trip in range(o.count):
                    self.registers[o.rd] = trip
                    self.block(instrs, at + 1, at + 1 + o.body)
                at += o.body
            else:
                self.instruction(instr, o)
            at += 1

    def instruction(self, instr: Instr, o: Any) -> None:
        name, count = instr.name, getattr(o, "count", 1)
        if count <= 0:
            return self.idle()
        if name in ("RD", "WR"):
            return self.burst(name, o.bank, o.row, o.column, count)
        if name in ("PIMRD", "PIMWR"):
            return self.burst(name[3:], o.parity, o.row, o.column, count)
        if name == "WRCRF":
            return self.burst("WR", o.parity, self.reserved, o.column, -(-len(o.program) // 8))
        if name == "WRSRF":
            return self.burst("WR", o.parity, self.reserved, 4, 1)
        if name == "WRGRF":
            return self.burst("WR", o.parity, self.reserved, 8 + 8 * o.file + o.first, count)
        if name == "ACT":
            if all(self.rows.get(b) == o.row for b in self.reached(o.bank)):
                return self.idle()
            return self.open(o.bank, o.row)
        if name in ("PRE", "PREA"):
            banks = frozenset(range(self.banks)) if name == "PREA" else self.reached(o.bank)
            if not any(b in self.rows for b in banks):
                return self.idle()
            return self.tick(lambda: (name, banks, None, None) if any(b in self.rows for b in banks) else None)
        if name == "REF":
            debt = (self.cycle + self.phase) // self.t.nREFI - self.refreshes
            wanted = self.refresh.postpone if o.when else 1 - self.refresh.pull_in
            if not self.refresh.enabled or debt < wanted:
                return self.idle()
            while not self.refresh_step():
                self.cycle += 1
            self.cycle += 1
            return None
        if name == "MODE":
            return self.switch(("single", "all_bank", "pim")[o.mode], o.parity)
        if instr.declaration.semantics is not None:
            instr.declaration.semantics(self, o)
        return self.idle()

    def switch(self, mode: str, parity: int) -> None:
        if mode == self.mode != "pim":
            return self.idle()
        everything = frozenset(range(self.banks))
        if mode == "single" and self.mode == "pim":
            self.burst("WR", parity, self.reserved, 24, 1)
            self.mode = "all_bank"
        if "single" in (mode, self.mode) and mode != self.mode:
            self.tick(lambda: ("PREA", everything, None, None) if self.rows else None)
            to_all_bank = self.mode == "single"
            firsts = range(0, self.banks, self.per_group) if to_all_bank else (0, 1)
            for bank in firsts:
                self.sequence("ACT", self.reached(bank), self.reserved)
            self.sequence("PREA", everything, None, settles=True)
            self.mode = "all_bank" if to_all_bank else "single"
        if mode == "pim" or (mode == "all_bank" and self.mode == "pim"):
            self.burst("WR", parity, self.reserved, 24, 1)
            self.mode = mode
        return None

    def sequence(self, command: str, banks: frozenset[int], row: int | None, settles: bool = False) -> None:
        """A command of a mode switch: refresh does not come between."""
        while not self.allowed(command, banks):
            self.cycle += 1
        self.issue(command, banks, row, None, settles)
        self.cycle += 1

    def reached(self, bank: int) -> frozenset[int]:
        return frozenset({bank} if self.mode == "single" else range(bank % 2, self.banks, 2))

    def idle(self) -> None:
        """A slot without a command; a refresh that is due may use the bus."""
        if self.refresh.enabled and self.cycle >= self.due():
            self.refresh_step()
        self.cycle += 1

    def open(self, bank: int, row: int) -> None:
        self.tick(lambda: self.turn(bank, row))

    def turn(self, bank: int, row: int) -> Any:
        banks = self.reached(bank)
        if all(self.rows.get(b) == row for b in banks):
            return None
        if any(self.rows.get(b, row) != row for b in banks):
            return ("PRE", banks, None, None)
        return ("ACT", banks, row, None)

    def burst(self, command: str, bank: int, row: int, first: int, count: int) -> None:
        for column in range(first, first + count):
            done = len(self.history)

            def wanted(column: int = column, done: int = done) -> Any:
                if any(p.column == column and p.command == command for p in self.history[done:]):
                    return None
                return self.turn(bank, row) or (command, self.reached(bank), row, column)

            self.tick(wanted)

    def tick(self, wanted: Any) -> None:
        """Cycle after cycle until nothing is wanted any more; a refresh that is due goes first."""
        while (want := wanted()) is not None:
            command, banks, row, column = want
            if self.refresh.enabled and self.cycle >= self.due():
                self.refresh_step()
            elif self.allowed(command, banks):
                self.issue(command, banks, row, column)
            self.cycle += 1

    def due(self) -> int:
        return (self.refreshes + self.refresh.postpone + 1) * self.t.nREFI - self.phase

    def refresh_step(self) -> bool:
        """One command towards a refresh, if it is allowed in this cycle; whether REF has been issued."""
        everything = frozenset(range(self.banks))
        command = "PREA" if self.rows else "REF"
        if self.allowed(command, everything):
            self.issue(command, everything, None, None)
            if command == "REF":
                self.refreshes += 1
                return True
        return False

    def issue(
        self, command: str, banks: frozenset[int], row: int | None, column: int | None, settles: bool = False
    ) -> None:
        self.history.append(Issued(self.cycle, command, banks, row, column, self.mode != "single", settles))
        for bank in banks:
            if command == "ACT":
                assert row is not None
                self.rows[bank] = row
            elif command in ("PRE", "PREA"):
                self.rows.pop(bank, None)

    def allowed(self, command: str, banks: frozenset[int]) -> bool:
        return all(self.cycle - past.cycle >= self.gap(past, command, banks) for past in self.history[-400:])

    def gap(self, past: Issued, command: str, banks: frozenset[int]) -> int:
        t, before = self.t, past.command
        if past.settles:
            return t.nMOD
        if before == "REF":
            return t.nRFC
        shared = bool(past.banks & banks)
        near = self.mode != "single" or past.wide
        near = near or bool({b // self.per_group for b in past.banks} & {b // self.per_group for b in banks})
        closing = command in ("PRE", "PREA")
        if before == "ACT":
            if command == "ACT":
                return t.nRC if shared else (t.nRRDL if near else t.nRRDS)
            if command == "REF":
                return t.nRC
            if shared:
                return t.nRAS if closing else (t.nRCDRD if command == "RD" else t.nRCDWR)
        if before in ("PRE", "PREA") and (command == "REF" or (command == "ACT" and shared)):
            return t.nRP
        if closing and shared and before in ("RD", "WR"):
            return t.nBL + max(0, t.nRTPL - t.nCCDL) if before == "RD" else t.nCWL + t.nBL + t.nWR
        if before == command and command in ("RD", "WR"):
            return t.nCCDL if near else t.nCCDS
        if (before, command) == ("RD", "WR"):
            return t.nCL + t.nBL + t.nRTW - t.nCWL
        if (before, command) == ("WR", "RD"):
            return t.nCWL + t.nBL + (t.nWTRL if near else t.nWTRS)
        return 1
