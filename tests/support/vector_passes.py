"""Runs vector passes on NumPy scratch through the instruction set's own encoding and meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from wordline.compiler.integers import round_up
from wordline.compiler.kernel.passes import PassItem, PassLoop, PassSpec
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import Register, SharedRegister
from wordline.compiler.vector.emit import pass_instruction
from wordline.isa import instruction_set
from wordline.isa.controller.vector_pass import execute_pass
from wordline.isa.instruction import decode, encode, evaluate
from wordline.machines import Machine
from wordline.numerics import formats

_POISON = 0xFF  # NaN in every format: what is read before it is written shows.


class VectorState:
    """Scratch, registers and shared registers; buffers are placed as they are first named.

    ``scratch_bytes`` replaces the machine's scratch size a channel (offsets of 16 MB and less can be encoded).
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.isa = instruction_set(machine.generation)
        self.channels = machine.organisation.channels
        self.scratch_bytes = machine.scratch.bytes_per_channel
        self.scratch = np.full(self.channels * self.scratch_bytes, _POISON, dtype=np.uint8)
        self.registers = [0] * machine.command_processor.registers
        self.shared = np.zeros(machine.command_processor.shared_registers, dtype=np.int32)
        self._buffers: dict[ScratchBuffer, int] = {}
        self._next = 0
        self._registers: dict[Register, int] = {}
        self._shared: dict[SharedRegister, int] = {}

    def place(self, buffer: ScratchBuffer) -> int:
        """Byte offset of a buffer in every channel."""
        if buffer not in self._buffers:
            self._buffers[buffer] = self._next
            self._next += round_up(buffer.bytes_per_channel, self.machine.organisation.column_bytes)
            assert self._next <= self.scratch_bytes, f"scratch is full: {buffer}"
        return self._buffers[buffer]

    def register(self, register: Register) -> int:
        return self._registers.setdefault(register, len(self._registers) + 2)

    def shared_number(self, register: SharedRegister) -> int:
        return self._shared.setdefault(register, len(self._shared))

    def addresses(self, tensor: ScratchTensor, channel: int = 0) -> NDArray[np.int64]:
        """Byte address of every element of the capacity, in flat order."""
        offsets = np.zeros(1, dtype=np.int64)
        for extent, stride in tensor.dims:
            offsets = (offsets[:, None] + np.arange(extent) * stride).reshape(-1)
        return offsets + self.place(tensor.buffer) + tensor.offset + channel * self.scratch_bytes

    def write(self, tensor: ScratchTensor, values: NDArray[np.generic]) -> None:
        """Fill a tensor (all copies); bf16 rounds."""
        flat = np.asarray(values).reshape(-1)
        for channel in range(self.channels if tensor.replicated else 1):
            at = self.addresses(tensor, channel)[: tensor.elements]
            if tensor.dtype == "bf16":
                self.scratch.view(np.uint16)[at // 2] = formats.f32_to_bf16_bits(flat.astype(np.float32))
            else:
                kind = np.float32 if tensor.dtype == "f32" else np.int32
                self.scratch.view(kind)[at // 4] = flat.astype(kind)

    def read(self, tensor: ScratchTensor, channel: int = 0, *, padding: bool = False) -> NDArray[np.float32]:
        """Elements of one channel's copy as float32; with ``padding`` the whole capacity."""
        at = self.addresses(tensor, channel)[: tensor.capacity if padding else tensor.elements]
        if tensor.dtype == "bf16":
            return formats.bf16_bits_to_f32(self.scratch.view(np.uint16)[at // 2])
        return np.asarray(
            self.scratch.view(np.float32 if tensor.dtype == "f32" else np.int32)[at // 4], dtype=np.float32
        )

    def read_shared(self, register: SharedRegister) -> np.int32:
        return np.int32(self.shared[self.shared_number(register)])

    def run(self, items: Iterable[PassItem], registers: Mapping[Register, int] | None = None) -> None:
        """Execute passes; every one goes through its encoded form."""
        for register, value in (registers or {}).items():
            self.registers[self.register(register)] = value
        for item in items:
            if isinstance(item, PassLoop):
                for at in range(item.count.evaluate(lambda r: self.registers[self.register(r)])):
                    self.run(item.body, {item.register: at})
            else:
                self._execute(item)

    def _execute(self, spec: PassSpec) -> None:
        built = pass_instruction(self.isa, spec, self.place, self.register, self.shared_number)
        decoded, _ = decode(self.isa, encode(built), 0)
        operands: SimpleNamespace = evaluate(decoded, self.registers)
        execute_pass(self, operands)
