"""Symbolic numbers of the kernel level: virtual registers, affine forms over them, shared registers.

A kernel names registers; register allocation gives them numbers later. An affine form that an instruction carries must
end up with at most two register terms and strides that fit (:mod:`wordline.isa.affine`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from wordline.isa.affine import Affine, affine


@dataclass(frozen=True, slots=True)
class Register:
    """A local int32 register of the stream whose code names it."""

    name: str

    def __add__(self, other: IntLike) -> Linear:
        return linear(self) + other

    __radd__ = __add__

    def __sub__(self, other: IntLike) -> Linear:
        return linear(self) - other

    def __rsub__(self, other: IntLike) -> Linear:
        return linear(other) - self

    def __mul__(self, factor: int) -> Linear:
        return linear(self) * factor

    __rmul__ = __mul__

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True, slots=True)
class SharedRegister:
    """A shared register: written by a reduction of a pass, read as a scalar by later passes and by GETS."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, slots=True)
class Linear:
    """``imm + sum(register * stride)``; terms are sorted by register name, without zero strides."""

    imm: int = 0
    terms: tuple[tuple[Register, int], ...] = ()

    @property
    def is_constant(self) -> bool:
        """Whether it names no register."""
        return not self.terms

    @property
    def registers(self) -> tuple[Register, ...]:
        """The registers it names."""
        return tuple(register for register, _ in self.terms)

    def __add__(self, other: IntLike) -> Linear:
        right = linear(other)
        strides = dict(self.terms)
        for register, stride in right.terms:
            strides[register] = strides.get(register, 0) + stride
        terms = sorted((item for item in strides.items() if item[1]), key=lambda item: item[0].name)
        return Linear(self.imm + right.imm, tuple(terms))

    __radd__ = __add__

    def __sub__(self, other: IntLike) -> Linear:
        return self + linear(other) * -1

    def __rsub__(self, other: IntLike) -> Linear:
        return linear(other) - self

    def __mul__(self, factor: int) -> Linear:
        terms = tuple((register, stride * factor) for register, stride in self.terms) if factor else ()
        return Linear(self.imm * factor, terms)

    __rmul__ = __mul__

    def evaluate(self, value: Callable[[Register], int]) -> int:
        """The number for given register values (not wrapped)."""
        return self.imm + sum(value(register) * stride for register, stride in self.terms)

    def resolve(self, number: Callable[[Register], int]) -> Affine:
        """The instruction operand, registers replaced by their numbers."""
        return affine(self.imm, *((number(register), stride) for register, stride in self.terms))

    def __str__(self) -> str:
        parts = [str(register) if stride == 1 else f"{register}*{stride}" for register, stride in self.terms]
        if self.imm or not parts:
            parts.append(str(self.imm))
        return "+".join(parts).replace("+-", "-")


IntLike = int | Register | Linear


def linear(value: IntLike) -> Linear:
    """``value`` as an affine form."""
    if isinstance(value, Linear):
        return value
    return Linear(0, ((value, 1),)) if isinstance(value, Register) else Linear(value)
