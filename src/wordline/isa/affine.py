"""The affine operand: how a device program names an address, a length or a trip count.

An affine operand is ``imm + register[a] * stride_a + register[b] * stride_b`` in 32-bit two's complement arithmetic,
encoded in one 64-bit word: ``imm`` signed 24 bits (bits 0-23), then twice a 5-bit register number and a signed 15-bit
stride (bits 24-43, 44-63). Register 0 always reads zero, so an unused term is ``(0, 0)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordline.errors import WordlineError

IMM_BITS = 24
REGISTER_BITS = 5
STRIDE_BITS = 15
MAX_TERMS = 2
"""Register terms of an operand."""
IMM_RANGE = (-(1 << (IMM_BITS - 1)), (1 << (IMM_BITS - 1)) - 1)
STRIDE_RANGE = (-(1 << (STRIDE_BITS - 1)), (1 << (STRIDE_BITS - 1)) - 1)


def sign_extend(value: int, bits: int) -> int:
    """Read the low ``bits`` of ``value`` as two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


@dataclass(frozen=True, slots=True)
class Affine:
    """``imm + sum(register * stride)`` with at most two terms ``(register, stride)``."""

    imm: int = 0
    terms: tuple[tuple[int, int], ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether it names no register."""
        return not self.terms

    def evaluate(self, registers: Sequence[int]) -> int:
        """Value for the given register file, wrapped to 32-bit two's complement."""
        total = self.imm + sum(registers[register] * stride for register, stride in self.terms)
        return sign_extend(total, 32)

    def encode(self) -> int:
        """The 64-bit word. Raises ``WordlineError`` when a part does not fit its field."""
        if len(self.terms) > MAX_TERMS:
            raise WordlineError(
                "affine-terms",
                f"an affine operand has at most {MAX_TERMS} register terms, got {len(self.terms)}: {self}",
            )
        if not IMM_RANGE[0] <= self.imm <= IMM_RANGE[1]:
            raise WordlineError("affine-range", f"immediate {self.imm} does not fit {IMM_BITS} bits: {self}")
        word = self.imm & ((1 << IMM_BITS) - 1)
        shift = IMM_BITS
        for register, stride in self.terms:
            if not 0 < register < 1 << REGISTER_BITS:
                raise WordlineError("affine-range", f"register {register} is outside 1..31: {self}")
            if stride == 0 or not STRIDE_RANGE[0] <= stride <= STRIDE_RANGE[1]:
                raise WordlineError(
                    "affine-range", f"stride {stride} is zero or does not fit {STRIDE_BITS} bits: {self}"
                )
            word |= register << shift | (stride & ((1 << STRIDE_BITS) - 1)) << (shift + REGISTER_BITS)
            shift += REGISTER_BITS + STRIDE_BITS
        return word

    @classmethod
    def decode(cls, word: int) -> Affine:
        """Inverse of :meth:`encode`; terms with register 0 or stride 0 contribute nothing and are dropped."""
        terms = []
        for shift in (IMM_BITS, IMM_BITS + REGISTER_BITS + STRIDE_BITS):
            register = word >> shift & ((1 << REGISTER_BITS) - 1)
            stride = sign_extend(word >> (shift + REGISTER_BITS), STRIDE_BITS)
            if register and stride:
                terms.append((register, stride))
        return cls(sign_extend(word, IMM_BITS), tuple(terms))

    def __str__(self) -> str:
        parts = [f"r{register}" if stride == 1 else f"r{register}*{stride}" for register, stride in self.terms]
        if self.imm or not parts:
            parts.append(str(self.imm))
        return "+".join(parts).replace("+-", "-")


ZERO = Affine()


def affine(imm: int = 0, *terms: tuple[int, int]) -> Affine:
    """Build an operand, merging equal registers and dropping zero strides and register 0."""
    merged: dict[int, int] = {}
    for register, stride in terms:
        if register:
            merged[register] = merged.get(register, 0) + stride
    return Affine(imm, tuple((register, stride) for register, stride in merged.items() if stride))
