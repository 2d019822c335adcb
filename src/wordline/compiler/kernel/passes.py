"""The vector pass before placement: buffers, registers and shared registers are still symbols.

Values are numbered as in the instruction (``wordline.isa.controller.vector``): operands, then scalars from
``FIRST_SCALAR`` up, then results of the operations from ``FIRST_RESULT`` up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchDType
from wordline.compiler.kernel.symbols import Linear, Register, SharedRegister, linear
from wordline.isa.affine import IMM_RANGE
from wordline.isa.controller.vector import FIRST_RESULT, FIRST_SCALAR

ReductionKind = Literal["sum", "max", "argmax"]
Strides = tuple[int, int, int]
NO_LIMIT = Linear(IMM_RANGE[1])
"""``high`` of a pass without a masked tail."""


@dataclass(frozen=True, slots=True)
class PassOperand:
    """A strided vector in scratch; ``offset``: bytes of the linear space from the start of the buffer on channel 0."""

    buffer: ScratchBuffer
    offset: Linear
    strides: Strides
    dtype: ScratchDType = "f32"
    rotate: bool = False

    def __str__(self) -> str:
        text = f"{self.buffer}[{self.offset}; {','.join(map(str, self.strides))}]:{self.dtype}"
        return text + ("~rotate" if self.rotate else "")


@dataclass(frozen=True, slots=True)
class SharedScalar:
    """A shared register as a scalar: its word as float32, or as an integer to convert (a result of ``argmax``)."""

    register: SharedRegister
    integer: bool = False

    def __str__(self) -> str:
        return f"i32 {self.register}" if self.integer else str(self.register)


ScalarSource = float | SharedScalar | Register
"""A number (rounded to float32), a shared register, or a local int32 register, converted to float32."""


@dataclass(frozen=True, slots=True)
class PassOperation:
    """``op`` (a name of the instruction set's ``VECTOR_OPS``) on earlier values."""

    op: str
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PassResult:
    """Where ``value`` goes; ``channels`` is the mask of channels that each get a copy, 0 for the linear address."""

    buffer: ScratchBuffer
    offset: Linear
    strides: Strides
    dtype: ScratchDType
    value: int
    channels: int = 0

    def __str__(self) -> str:
        target = f"{self.buffer}[{self.offset}; {','.join(map(str, self.strides))}]:{self.dtype}"
        return target + (f" in channels {self.channels:#x}" if self.channels else "")


@dataclass(frozen=True, slots=True)
class PassReduction:
    """``value`` reduced over the valid elements into a shared register (argmax: an int32 index)."""

    kind: ReductionKind
    value: int
    register: SharedRegister


@dataclass(frozen=True, slots=True)
class PassSpec:
    """One pass over ``shape`` elements, of which those with flat index in ``low .. high`` are valid."""

    shape: tuple[Linear, Linear, Linear]
    operands: tuple[PassOperand, ...] = ()
    scalars: tuple[ScalarSource, ...] = ()
    operations: tuple[PassOperation, ...] = ()
    result: PassResult | None = None
    reductions: tuple[PassReduction, ...] = ()
    low: Linear = field(default_factory=Linear)
    high: Linear = NO_LIMIT

    @property
    def registers(self) -> tuple[Register, ...]:
        """Local registers the pass reads, each once."""
        forms = [*self.shape, self.low, self.high, *(o.offset for o in self.operands)]
        if self.result is not None:
            forms.append(self.result.offset)
        found = [register for form in forms for register in form.registers]
        found += [scalar for scalar in self.scalars if isinstance(scalar, Register)]
        return tuple(dict.fromkeys(found))

    @property
    def shared_read(self) -> tuple[SharedRegister, ...]:
        """Shared registers the pass reads, each once."""
        return tuple(dict.fromkeys(s.register for s in self.scalars if isinstance(s, SharedScalar)))

    @property
    def shared_written(self) -> tuple[SharedRegister, ...]:
        """Shared registers its reductions write."""
        return tuple(r.register for r in self.reductions)

    def __str__(self) -> str:
        names = {i: str(o) for i, o in enumerate(self.operands)}
        names |= {FIRST_SCALAR + i: str(s) for i, s in enumerate(self.scalars)}
        names |= {FIRST_RESULT + i: f"v{i}" for i in range(len(self.operations))}
        text = [f"pass {'x'.join(map(str, self.shape))}"]
        if self.low != Linear() or self.high != NO_LIMIT:
            text.append(f" valid {self.low}..{'' if self.high == NO_LIMIT else self.high}")
        text += [f"\n  v{i} = {o.op} " + ", ".join(names[s] for s in o.sources) for i, o in enumerate(self.operations)]
        if self.result is not None:
            text.append(f"\n  {self.result} = {names[self.result.value]}")
        text += [f"\n  {r.register} = {r.kind} {names[r.value]}" for r in self.reductions]
        return "".join(text)


@dataclass(frozen=True, slots=True)
class PassLoop:
    """``body`` for ``register`` = 0, 1, ... ``count`` - 1."""

    register: Register
    count: Linear
    body: tuple[PassItem, ...]

    def __str__(self) -> str:
        inner = "\n".join(map(str, self.body)).replace("\n", "\n  ")
        return f"loop {self.register} < {self.count}\n  {inner}"


PassItem = PassSpec | PassLoop


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """Passes in program order on the vector stream."""

    items: tuple[PassItem, ...]

    def passes(self) -> Iterator[PassSpec]:
        """Every pass once, loops entered."""
        yield from _passes(self.items)

    @property
    def reads(self) -> tuple[ScratchBuffer, ...]:
        """Buffers read, each once, in order."""
        return tuple(dict.fromkeys(o.buffer for p in self.passes() for o in p.operands))

    @property
    def writes(self) -> tuple[ScratchBuffer, ...]:
        """Buffers written, each once, in order."""
        return tuple(dict.fromkeys(p.result.buffer for p in self.passes() if p.result is not None))

    @property
    def registers(self) -> tuple[Register, ...]:
        """Registers that must hold a value before the block: all it reads except its own loop registers."""
        own: set[Register] = set()
        read: list[Register] = []

        def visit(items: Sequence[PassItem]) -> None:
            for item in items:
                if isinstance(item, PassLoop):
                    own.add(item.register)
                    read.extend(item.count.registers)
                    visit(item.body)
                else:
                    read.extend(item.registers)

        visit(self.items)
        return tuple(dict.fromkeys(r for r in read if r not in own))

    @property
    def shared_written(self) -> tuple[SharedRegister, ...]:
        """Shared registers written, each once, in order."""
        return tuple(dict.fromkeys(r for p in self.passes() for r in p.shared_written))

    def __str__(self) -> str:
        return "\n".join(map(str, self.items))


def _passes(items: Sequence[PassItem]) -> Iterator[PassSpec]:
    for item in items:
        if isinstance(item, PassLoop):
            yield from _passes(item.body)
        else:
            yield item


def pass_shape(*extents: int | Register | Linear) -> tuple[Linear, Linear, Linear]:
    """Up to three extents as a pass shape, ones added outside."""
    if len(extents) > 3:
        raise ValueError(f"a pass has at most three extents, got {extents}")
    a, b, c = (*(linear(1),) * (3 - len(extents)), *map(linear, extents))
    return a, b, c
