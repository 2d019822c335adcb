"""The command processor of the reference: executes one stream on one channel, an instruction at a time.

A processor is also the state that instruction semantics see (``wordline.isa``): its registers, and through it the
memories of its channel and of the device.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from wordline.isa.affine import Affine
from wordline.isa.bounds import Bounds, check_range
from wordline.isa.controller.control import CHANNEL_REGISTER, REGISTERS
from wordline.isa.declare import Engine, Instruction, OperandError
from wordline.isa.disassemble import format_head
from wordline.isa.instruction import Instr
from wordline.isa.program import Stream
from wordline.sim.fault import Fault

if TYPE_CHECKING:
    from wordline.sim.reference import ReferenceDevice, Submission

U16 = npt.NDArray[np.uint16]


class Operands:
    """The operands of one instruction, what is constant in them evaluated once."""

    def __init__(self, instr: Instr) -> None:
        self.declaration: Instruction = instr.declaration
        self._constant: dict[str, Any] = dict(instr.fields)
        self._affine: list[tuple[str, Affine]] = []
        for name, value in instr.words.items():
            if not isinstance(value, Affine):
                self._constant[name] = SimpleNamespace(**value)
            elif value.is_constant:
                self._constant[name] = value.imm
            else:
                self._affine.append((name, value))
        for name, entries in instr.groups.items():
            self._constant[name] = [_packed_entry(entry) for entry in entries]
        self._group_affine = [
            (name, index, key, value)
            for name, entries in instr.groups.items()
            for index, entry in enumerate(entries)
            for key, value in entry.items()
            if isinstance(value, Affine)
        ]

    def evaluate(self, registers: list[int]) -> SimpleNamespace:
        """Every field, word and group as an attribute."""
        values = SimpleNamespace(**self._constant)
        for name, operand in self._affine:
            setattr(values, name, operand.evaluate(registers))
        for name, index, key, operand in self._group_affine:
            setattr(getattr(values, name)[index], key, operand.evaluate(registers))
        return values


def _packed_entry(entry: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(**{k: v if isinstance(v, Affine) else SimpleNamespace(**v) for k, v in entry.items()})


class LoadedStream:
    """A stream with its operands prepared; shared by the processors of all its channels."""

    def __init__(self, stream: Stream) -> None:
        self.engine = stream.engine
        self.channel_mask = stream.channel_mask
        self.instrs = stream.instrs
        self.operands = [Operands(instr) for instr in stream.instrs]


class Processor:
    """One stream on one channel (vector and link streams: channel 0)."""

    def __init__(
        self, device: ReferenceDevice, submission: Submission, stream_index: int, stream: LoadedStream, channel: int
    ) -> None:
        self.stream_index = stream_index
        self.stream = stream
        self.channel = channel
        self.position = 0
        self.registers = [0] * REGISTERS
        if stream.engine is Engine.CHANNEL:
            self.registers[CHANNEL_REGISTER] = channel
        self._loops: list[list[int]] = []  # [rd, index, count, first, end]
        self._device = device
        self._submission = submission
        self._bounds: Bounds = device.bounds
        self.argument_base = submission.argument_base
        self.shared = submission.shared
        self.channels = device.channels
        self.scratch = device.scratch_memory
        self.scratch_bytes = device.bounds.scratch_bytes
        self._own_scratch = self.scratch[channel * self.scratch_bytes : (channel + 1) * self.scratch_bytes]
        self.own = device.own[channel]
        self._step: dict[str, Callable[[SimpleNamespace], bool]] = {
            "LOOP": self._loop,
            "WAIT": self._wait,
            "SIGNAL": self._signal,
        }

    @property
    def finished(self) -> bool:
        return self.position >= len(self.stream.instrs)

    def fault(self, reason: str) -> Fault:
        """A fault at the current instruction."""
        instr = self.stream.instrs[self.position]
        return Fault(self.stream_index, self.channel, self.position, reason, format_head(instr))

    def step(self) -> bool:
        """Execute one instruction; False if it is a WAIT that does not hold yet. Raises :class:`Fault`."""
        operands = self.stream.operands[self.position]
        declaration = operands.declaration
        try:
            values = operands.evaluate(self.registers)
            control = self._step.get(declaration.name)
            if control is not None:
                return control(values)
            self._bounds.check(declaration, vars(values))
            if declaration.semantics is not None and getattr(values, "count", 1) > 0:
                declaration.semantics(self, values)
        except OperandError as error:
            raise self.fault(str(error)) from None
        self.position += 1
        self._close_loops()
        return True

    def _loop(self, o: SimpleNamespace) -> bool:
        first = self.position + 1
        if o.count <= 0:
            self.position = first + o.body
        elif o.body == 0:
            self.registers[o.rd] = o.count - 1
            self.position = first
        else:
            self.registers[o.rd] = 0
            self._loops.append([o.rd, 0, o.count, first, first + o.body])
            self.position = first
            return True
        self._close_loops()
        return True

    def _close_loops(self) -> None:
        while self._loops and self.position == self._loops[-1][4]:
            loop = self._loops[-1]
            loop[1] += 1
            if loop[1] < loop[2]:
                self.registers[loop[0]] = loop[1]
                self.position = loop[3]
                return
            self._loops.pop()

    def _wait(self, o: SimpleNamespace) -> bool:
        if o.value > 0 and self._submission.signal_value(o.signal) < o.value:
            return False
        self.position += 1
        self._close_loops()
        return True

    def _signal(self, o: SimpleNamespace) -> bool:
        self._submission.add_signal(o.signal, self.channel)
        self.position += 1
        self._close_loops()
        return True

    # What instruction semantics use.

    def all_bank_columns(self, row: int, column: int, count: int) -> U16:
        """uint16 [banks, count, lanes] of this channel, for reading."""
        return self._device.memory.row(self.channel, row)[:, column : column + count]

    def bank_columns(self, bank: int, row: int, column: int, count: int) -> U16:
        """uint16 [count, lanes], for reading."""
        return self._device.memory.row(self.channel, row)[bank, column : column + count]

    def writable_bank_columns(self, bank: int, row: int, column: int, count: int) -> U16:
        """uint16 [count, lanes], for writing."""
        return self._device.memory.writable_row(self.channel, row)[bank, column : column + count]

    def scratch_columns(self, offset: int, count: int) -> U16:
        """uint16 [count, lanes] of this channel's scratch, writable."""
        size = self._bounds.column_bytes
        return self._own_scratch[offset : offset + count * size].view(np.uint16).reshape(count, size // 2)

    def scratch_element(self, offset: int) -> int:
        """The 16-bit element at a byte offset of this channel's scratch."""
        return int(self._own_scratch[offset : offset + 2].view(np.uint16)[0])

    def load_word(self, address: int) -> int:
        """A word of controller memory."""
        check_range("controller memory word", address, 1, self._bounds.controller_words)
        return int(self._device.controller_memory[address])

    def store_word(self, address: int, value: int) -> None:
        """Set a word of controller memory."""
        check_range("controller memory word", address, 1, self._bounds.controller_words)
        self._device.controller_memory[address] = value

    def host_window(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """uint8 [size] of host memory at ``address``, writable; it must lie within one open window."""
        for start, window in self._device.host_windows.items():
            if start <= address and address + size <= start + window.size:
                return window[address - start : address - start + size]
        raise OperandError(f"host address {address:#x} with {size} bytes lies in no open window")
