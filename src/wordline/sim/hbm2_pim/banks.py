"""What the commands of a pseudo-channel do to data: the definition, in NumPy (rules: docs/hbm2-pim.md).

Eight blocks, each on an even and an odd bank, run one CRF program in step. A trigger is one column read or write of all
banks of a parity in PIM mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from wordline.isa.declare import OperandError
from wordline.isa.hbm2_pim.bank import CRF_COLUMN_ENTRIES, MODES
from wordline.isa.hbm2_pim.crf import EVEN_BANK, GRF_A, REGISTERS, SRF_M
from wordline.isa.hbm2_pim.crf_program import decode_crf, triggers
from wordline.isa.instruction import Instr
from wordline.machines import Machine
from wordline.machines.hbm2_pim import Pim
from wordline.numerics.fp16 import U16
from wordline.sim.bank_memory import BankMemory

SINGLE, ALL_BANK, PIM = MODES
PARITIES = ("even", "odd")


class Sequencer:
    """Where the blocks are in the CRF program: the next entry, triggers done of it, and the loop counter."""

    def __init__(self, entries: int) -> None:
        self._words = [0] * entries
        self._instrs = [decode_crf(0)] * entries
        self.restart()

    def load(self, first: int, words: Sequence[int]) -> None:
        """Replace entries."""
        if first + len(words) > len(self._words):
            raise OperandError(f"CRF entry {first + len(words) - 1} is outside 0..{len(self._words) - 1}")
        self._words[first : first + len(words)] = words
        self._instrs[first : first + len(words)] = [decode_crf(word) for word in words]

    def restart(self) -> None:
        """Go to entry 0."""
        self._entry = 0
        self._done = 0
        self._left: int | None = None  # jumps left of the loop in progress

    def trigger(self) -> tuple[Instr, int]:
        """The instruction that a trigger executes, and how many of its triggers went before.

        JUMP is taken together with the instruction after it. Raises ``OperandError`` where the program has ended.
        """
        while self._entry < len(self._instrs) and (instr := self._instrs[self._entry]).name == "JUMP":
            left = instr.fields["count"] if self._left is None else self._left
            self._left = left - 1 if left else None
            self._entry = instr.fields["target"] if left else self._entry + 1
        if self._entry >= len(self._instrs) or self._instrs[self._entry].name == "EXIT":
            raise OperandError("the CRF program has ended; MODE starts it again")
        instr, before = self._instrs[self._entry], self._done
        self._done += 1
        if self._done == triggers(instr):
            self._entry += 1
            self._done = 0
        return instr, before


class PseudoChannel:
    """The state of one pseudo-channel behind its commands: mode, CRF, registers; its rows are in ``memory``.

    ``grf`` is uint16 [2, registers, blocks, lanes], ``srf`` uint16 [16]: 8 multiplier, 8 adder scalars.
    """

    def __init__(self, machine: Machine, memory: BankMemory, channel: int) -> None:
        pim, organisation = machine.section("pim", Pim), machine.organisation
        self.mode = SINGLE
        self.sequencer = Sequencer(pim.crf_entries)
        self.grf: U16 = np.zeros((2, pim.grf_registers, organisation.banks // 2, pim.lanes), dtype=np.uint16)
        self.srf: U16 = np.zeros(2 * pim.srf_scalars, dtype=np.uint16)
        self._columns = organisation.columns
        self._memory = memory
        self._channel = channel

    def set_mode(self, mode: str) -> None:
        """Change the mode; into PIM mode the program starts again."""
        self.mode = mode
        if mode == PIM:
            self.sequencer.restart()

    def read(self, bank: int, row: int, column: int, count: int) -> U16:
        """uint16 [count, lanes] of one bank."""
        self._need("RD", SINGLE)
        return self._memory.row(self._channel, row)[bank, column : column + count]

    def write(self, bank: int, row: int, column: int, data: U16) -> None:
        """Write uint16 [count, lanes] to one bank, or in all-bank mode to all of its parity."""
        self._need("WR", SINGLE, ALL_BANK)
        banks = bank if self.mode == SINGLE else slice(bank % 2, None, 2)
        self._memory.writable_row(self._channel, row)[banks, column : column + len(data)] = data

    def load_crf(self, column: int, words: Sequence[int]) -> None:
        """Entries from 8 x column up; the rest of the last column becomes EXIT."""
        self._need("WRCRF", ALL_BANK, PIM)
        self.sequencer.load(CRF_COLUMN_ENTRIES * column, [*words, *[0] * (-len(words) % CRF_COLUMN_ENTRIES)])

    def load_srf(self, scalars: npt.NDArray[np.uint16]) -> None:
        """All scalars, uint16 [16]."""
        self._need("WRSRF", ALL_BANK, PIM)
        self.srf[:] = scalars

    def load_grf(self, file: int, first: int, data: U16) -> None:
        """Registers from ``first`` up, uint16 [count, lanes], the same in all blocks."""
        self._need("WRGRF", ALL_BANK, PIM)
        self.grf[file, first : first + len(data)] = data[:, None]

    def trigger_reads(self, parity: int, row: int, column: int, count: int) -> None:
        """Triggers with the columns of all banks of a parity."""
        self._need("PIMRD", PIM)
        data = self._memory.row(self._channel, row)[parity::2]
        for at in range(column, column + count):
            instr, before = self.sequencer.trigger()
            if instr.declaration.semantics is not None:
                self._execute(instr, before, parity, row, at, data[:, at])

    def trigger_writes(self, parity: int, row: int, column: int, count: int) -> None:
        """Triggers that store a register each: GRF_A to even banks, GRF_B to odd ones."""
        self._need("PIMWR", PIM)
        data = self._memory.writable_row(self._channel, row)[parity::2]
        for at in range(column, column + count):
            instr, _ = self.sequencer.trigger()
            if instr.name != "NOP":
                raise OperandError(f"a write triggers {instr.name}; only NOP lets a register out")
            data[:, at] = self.grf[parity, at % REGISTERS]

    def _execute(self, instr: Instr, before: int, parity: int, row: int, column: int, data: U16) -> None:
        fields = instr.fields
        state = SimpleNamespace()
        for name in "abc":
            if name in fields:
                index = self._index(instr, name, row, column)
                setattr(state, name, self._operand(instr.name, fields[name], index, parity, data))
        file, register = divmod(fields["dst"], REGISTERS)
        if fields["aam"]:
            register = column % REGISTERS
        elif instr.name == "FILL":
            register = before
        state.d = self.grf[file, register]
        assert instr.declaration.semantics is not None
        instr.declaration.semantics(state, SimpleNamespace(**fields))
        self.grf[file, register] = state.d

    def _index(self, instr: Instr, name: str, row: int, column: int) -> int:
        """The register or scalar that an operand names in its file.

        Address-aligned, factors of MAC and MAD in GRF_A and SRF_M move on once every 8 columns, other scalars keep
        their number, and everything else follows the column.
        """
        file, own = divmod(instr.fields[name], REGISTERS)
        factor = instr.name in ("MAC", "MAD") and name != "c"
        if not instr.fields["aam"]:
            return own
        if factor and file in (GRF_A // REGISTERS, SRF_M // REGISTERS):
            return (row * self._columns + column) // REGISTERS % REGISTERS
        return own if file >= SRF_M // REGISTERS else column % REGISTERS

    def _operand(self, name: str, value: int, index: int, parity: int, data: U16) -> U16:
        """An operand of all blocks, uint16 [blocks, lanes]."""
        if value >= EVEN_BANK:
            if value - EVEN_BANK != parity:
                raise OperandError(
                    f"{name} reads an {PARITIES[1 - parity]} bank, the command an {PARITIES[parity]} one"
                )
            return data
        file = value // REGISTERS
        if value >= SRF_M:
            return np.broadcast_to(self.srf[(file - SRF_M // REGISTERS) * REGISTERS + index], data.shape)
        register: U16 = self.grf[file, index]
        return register

    def _need(self, command: str, *modes: str) -> None:
        if self.mode not in modes:
            raise OperandError(f"{command} needs {' or '.join(modes)} mode, the pseudo-channel is in {self.mode} mode")
