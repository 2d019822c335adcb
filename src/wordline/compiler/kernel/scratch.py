"""Scratch buffers and the tensors that lie in them.

Scratch is one linear byte space ``channel * bytes_per_channel + offset``. A buffer takes the same byte range of every
channel; a tensor says where its elements are, as a mixed-radix function of the flat (row-major) element index, so that
contiguous vectors, vectors spread over channels and copies in every channel are one thing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from wordline.compiler.integers import ceil_div, round_up
from wordline.machines.machine import Machine

ScratchDType = Literal["bf16", "f32", "i32", "f16"]
ELEMENT_BYTES: dict[ScratchDType, int] = {"bf16": 2, "f32": 4, "i32": 4, "f16": 2}


@dataclass(frozen=True, eq=False, slots=True)
class ScratchBuffer:
    """``bytes_per_channel`` bytes at one offset in every channel, chosen by the memory plan. Equal if identical."""

    name: str
    bytes_per_channel: int

    def __str__(self) -> str:
        return f"@{self.name}"


@dataclass(frozen=True, slots=True)
class ScratchTensor:
    """Elements in a buffer.

    Attributes:
        buffer: the buffer.
        dtype: element format.
        dims: ``(extent, stride in bytes)`` of the digits of the flat element index, most significant first. A stride of
            ``bytes_per_channel`` steps over channels, 0 repeats an element. The product of the extents is the
            capacity; it may exceed ``elements`` (padding at the end).
        offset: byte offset of element 0 from the start of the buffer on channel 0.
        replicated: every channel has a copy at the same offset; ``dims`` then describe one channel's copy.
        elements: number of elements that mean something; -1 stands for the capacity.
    """

    buffer: ScratchBuffer
    dtype: ScratchDType
    dims: tuple[tuple[int, int], ...]
    offset: int = 0
    replicated: bool = False
    elements: int = -1

    def __post_init__(self) -> None:
        if self.elements < 0:
            object.__setattr__(self, "elements", self.capacity)
        if self.elements > self.capacity:
            raise ValueError(f"{self.buffer}: {self.elements} elements exceed the capacity {self.capacity}")

    @property
    def capacity(self) -> int:
        """Elements with padding."""
        return prod(extent for extent, _ in self.dims)

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def contiguous(self) -> bool:
        """One run of bytes, padding included."""
        expected = self.element_bytes
        for extent, stride in reversed(self.dims):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True

    def slice(self, first: int, elements: int) -> ScratchTensor:
        """Elements ``first .. first + elements`` of a tensor with one digit (contiguous or strided)."""
        if len(self.dims) != 1 or not 0 <= first <= first + elements <= self.dims[0][0]:
            raise ValueError(f"{self.buffer}: elements {first}..{first + elements} of {self.dims}")
        stride = self.dims[0][1]
        return replace(self, dims=((elements, stride),), offset=self.offset + first * stride, elements=elements)

    def __str__(self) -> str:
        dims = "x".join(f"{extent}:{stride}" for extent, stride in self.dims)
        return f"{self.buffer}+{self.offset}[{dims}] {self.dtype}" + (" in every channel" if self.replicated else "")


def contiguous(name: str, dtype: ScratchDType, elements: int, pad_to: int = 1) -> ScratchTensor:
    """A new vector on channel 0, its capacity rounded up to a multiple of ``pad_to`` elements."""
    capacity, size = round_up(elements, pad_to), ELEMENT_BYTES[dtype]
    return ScratchTensor(ScratchBuffer(name, capacity * size), dtype, ((capacity, size),), 0, False, elements)


def broadcast(name: str, dtype: ScratchDType, elements: int, pad_to: int = 1) -> ScratchTensor:
    """A new vector with a copy in every channel (inputs of GEMV kernels, parameters)."""
    return replace(contiguous(name, dtype, elements, pad_to), replicated=True)


def shard_elements(machine: Machine, elements: int) -> int:
    """Elements a channel of a GEMV result of ``elements`` (padding included): whole registers of all banks."""
    banks = machine.organisation.banks
    return banks * ceil_div(elements, banks * machine.organisation.channels)


def sharded(name: str, machine: Machine, elements: int, dtype: ScratchDType = "bf16") -> ScratchTensor:
    """A new GEMV result: element m at channel m // Mc, position m % Mc, with Mc = :func:`shard_elements`."""
    shard, size = shard_elements(machine, elements), ELEMENT_BYTES[dtype]
    buffer = ScratchBuffer(name, shard * size)
    dims = ((machine.organisation.channels, machine.scratch.bytes_per_channel), (shard, size))
    return ScratchTensor(buffer, dtype, dims, 0, False, elements)
