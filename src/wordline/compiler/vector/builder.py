"""Writes one vector pass: expressions with operators, values numbered and shared by the builder.

::

    b = PassBuilder(machine, (pages, channels, tokens), high=context)
    p = b.exp((b.load(scores, 0, strides) - b.scalar(top)) * b.scalar(scale))
    b.store(p, scores, 0, strides)
    b.reduce("sum", p, total)
    item = b.build()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from wordline.compiler.kernel.passes import (
    NO_LIMIT,
    PassOperand,
    PassOperation,
    PassReduction,
    PassResult,
    PassSpec,
    ReductionKind,
    ScalarSource,
    SharedScalar,
    Strides,
    pass_shape,
)
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchDType
from wordline.compiler.kernel.symbols import IntLike, Linear, Register, SharedRegister, linear
from wordline.errors import WordlineError
from wordline.isa.controller.vector import (
    FIRST_RESULT,
    FIRST_SCALAR,
    MAX_OPERANDS,
    MAX_OPERATIONS,
    MAX_REDUCTIONS,
    MAX_SCALARS,
    OP_BY_NAME,
)
from wordline.machines.machine import Machine

_T = TypeVar("_T")


@dataclass(frozen=True)
class PassValue:
    """A value of the pass under construction. Python operators are the pass operations of the same meaning."""

    builder: PassBuilder
    kind: str
    index: int

    def __add__(self, other: PassValue) -> PassValue:
        return self.builder.apply("add", self, other)

    def __sub__(self, other: PassValue) -> PassValue:
        return self.builder.apply("sub", self, other)

    def __mul__(self, other: PassValue) -> PassValue:
        return self.builder.apply("mul", self, other)


class PassBuilder:
    """Collects one pass over ``shape`` (up to three extents, outermost first), valid from ``low`` up to ``high``.

    Equal loads, scalars and operations are kept once. Limits are checked by :meth:`build`.
    """

    def __init__(
        self, machine: Machine, shape: Sequence[IntLike], *, low: IntLike = 0, high: IntLike | None = None
    ) -> None:
        self._machine = machine
        self._shape = pass_shape(*shape)
        self._low = linear(low)
        self._high = NO_LIMIT if high is None else linear(high)
        self._operands: list[PassOperand] = []
        self._scalars: list[ScalarSource] = []
        self._operations: list[tuple[str, tuple[PassValue, ...]]] = []
        self._result: tuple[PassValue, ScratchBuffer, Linear, Strides, ScratchDType, int] | None = None
        self._reductions: list[tuple[ReductionKind, PassValue, SharedRegister]] = []

    def load(
        self,
        buffer: ScratchBuffer,
        offset: IntLike,
        strides: Sequence[int],
        dtype: ScratchDType = "f32",
        *,
        rotate: bool = False,
    ) -> PassValue:
        """A vector operand; ``strides`` in bytes, one an extent of the shape (missing outer ones are 0)."""
        operand = PassOperand(buffer, linear(offset), _strides(strides), dtype, rotate)
        return PassValue(self, "operand", _index(self._operands, operand))

    def scalar(self, source: float | Register | SharedRegister | SharedScalar) -> PassValue:
        """A scalar; numbers are rounded to float32, a plain shared register is read as float32."""
        entry = SharedScalar(source) if isinstance(source, SharedRegister) else source
        keys = [_scalar_key(s) for s in self._scalars]
        if _scalar_key(entry) not in keys:
            self._scalars.append(entry)
            return PassValue(self, "scalar", len(keys))
        return PassValue(self, "scalar", keys.index(_scalar_key(entry)))

    def apply(self, op: str, *sources: PassValue) -> PassValue:
        """The operation ``op`` of the instruction set."""
        if len(sources) != OP_BY_NAME[op].arity:
            raise ValueError(f"{op} takes {OP_BY_NAME[op].arity} values, got {len(sources)}")
        return PassValue(self, "operation", _index(self._operations, (op, sources)))

    def exp(self, x: PassValue) -> PassValue:
        """e to the power x."""
        return self.apply("exp", x)

    def recip(self, x: PassValue) -> PassValue:
        """1 / x."""
        return self.apply("recip", x)

    def store(
        self,
        value: PassValue,
        buffer: ScratchBuffer,
        offset: IntLike,
        strides: Sequence[int],
        dtype: ScratchDType = "f32",
        *,
        every_channel: bool = False,
    ) -> None:
        """The vector result; with ``every_channel`` each channel gets a copy at the offset within the channel."""
        if self._result is not None:
            raise ValueError("a pass has one vector result")
        channels = all_channels(self._machine) if every_channel else 0
        self._result = (value, buffer, linear(offset), _strides(strides), dtype, channels)

    def reduce(self, kind: ReductionKind, value: PassValue, register: SharedRegister) -> None:
        """Reduce ``value`` over the valid elements into ``register``: sum, max, or argmax (the int32 flat index)."""
        self._reductions.append((kind, value, register))

    def excess(self) -> int:
        """By how many entries the pass exceeds the limits of machine and encoding; 0 when it can be built."""
        return sum(max(0, used - limit) for _, used, limit in self._usage())

    def build(self) -> PassSpec:
        """The pass.

        Raises:
            WordlineError: "pass-limits", a limit of the machine or of the encoding is exceeded.
        """
        for what, used, limit in self._usage():
            if used > limit:
                raise WordlineError("pass-limits", f"a vector pass needs {used} {what}, the unit has {limit}")
        operations = tuple(
            PassOperation(op, tuple(self._number(source) for source in sources)) for op, sources in self._operations
        )
        result = None
        if self._result is not None:
            value, buffer, offset, strides, dtype, channels = self._result
            result = PassResult(buffer, offset, strides, dtype, self._number(value), channels)
        return PassSpec(
            self._shape,
            tuple(self._operands),
            tuple(self._scalars),
            operations,
            result,
            tuple(PassReduction(kind, self._number(value), register) for kind, value, register in self._reductions),
            self._low,
            self._high,
        )

    def _usage(self) -> tuple[tuple[str, int, int], ...]:
        unit = self._machine.vector_passes
        return (
            ("operands", len(self._operands), min(unit.max_operands, MAX_OPERANDS)),
            ("scalars", len(self._scalars), min(unit.max_scalars, MAX_SCALARS)),
            ("operations", len(self._operations), min(unit.max_ops, MAX_OPERATIONS)),
            ("reductions", len(self._reductions), min(unit.max_reductions, MAX_REDUCTIONS)),
        )

    @staticmethod
    def _number(value: PassValue) -> int:
        return {"operand": 0, "scalar": FIRST_SCALAR, "operation": FIRST_RESULT}[value.kind] + value.index


def all_channels(machine: Machine) -> int:
    """The mask of every channel.

    Raises:
        WordlineError: "broadcast-mask", the machine has more channels than the mask of a pass.
    """
    if machine.organisation.channels > 32:
        raise WordlineError(
            "broadcast-mask",
            f"a vector pass broadcasts to at most 32 channels, the machine has {machine.organisation.channels}",
            where=machine.name,
        )
    return (1 << machine.organisation.channels) - 1


def _strides(strides: Sequence[int]) -> Strides:
    if len(strides) > 3:
        raise ValueError(f"a pass has at most three strides, got {tuple(strides)}")
    a, b, c = (*(0,) * (3 - len(strides)), *strides)
    return a, b, c


def _scalar_key(source: ScalarSource) -> object:
    # By bits: 0.0 and -0.0 differ, and equal NaNs are one scalar.
    return np.float32(source).tobytes() if isinstance(source, int | float) else source


def _index(entries: list[_T], entry: _T) -> int:
    if entry not in entries:
        entries.append(entry)
    return entries.index(entry)
