"""The kernel level: tasks on engines, made of commands, counted loops and vector passes over symbolic buffers.

A program is a list of tasks in one legal sequential order. Each engine runs its own tasks in that order; where tasks
of different engines touch the same scratch bytes, ``wordline.compiler.synchronise`` places signals and waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from wordline.compiler.kernel.passes import PassLoop, PassSpec
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.compiler.kernel.symbols import IntLike, Linear, Register, SharedRegister, linear
from wordline.isa.declare import Engine


@dataclass(frozen=True, slots=True)
class Address:
    """A place in a scratch buffer: ``offset`` bytes from its start."""

    buffer: ScratchBuffer
    offset: Linear = field(default_factory=Linear)

    def __add__(self, bytes_: IntLike) -> Address:
        return Address(self.buffer, self.offset + bytes_)

    def __str__(self) -> str:
        return f"{self.buffer}[{self.offset}]"


Operand = Linear | Address | SharedRegister


@dataclass(frozen=True, slots=True)
class Command:
    """One instruction.

    Operands by the names of its declaration; ``target`` is the register it writes, ``fields`` its header fields, and
    groups whose entries are one field.
    """

    name: str
    operands: tuple[tuple[str, Operand], ...] = ()
    target: Register | None = None
    fields: tuple[tuple[str, int | tuple[int, ...]], ...] = ()

    def __str__(self) -> str:
        parts = [f"{name}={value}" for name, value in (*self.operands, *self.fields)]
        return (f"{self.target} = " if self.target else "") + " ".join([self.name.lower(), *parts])


def command(
    name: str,
    into: Register | None = None,
    fields: Mapping[str, int | tuple[int, ...]] | None = None,
    /,
    **operands: IntLike | Address | SharedRegister,
) -> Command:
    """Build a command; integers and registers become affine forms."""
    values = tuple(
        (key, value if isinstance(value, (Address, SharedRegister)) else linear(value))
        for key, value in operands.items()
    )
    return Command(name, values, into, tuple((fields or {}).items()))


@dataclass(frozen=True, slots=True)
class Loop:
    """``body`` for ``register`` = 0 .. ``count`` - 1; a count of 0 or less is a predicate that fails."""

    register: Register
    count: Linear
    body: tuple[Item, ...]

    def __str__(self) -> str:
        return f"loop {self.register} < {self.count}\n" + indent(self.body)


Item = Command | Loop | PassSpec | PassLoop


def indent(items: Sequence[Item]) -> str:
    """The text of ``items``, one level further in."""
    return "\n".join(f"  {line}" for item in items for line in str(item).splitlines())


TaskKind = Literal["gemv", "embedding", "attention", "parameter", "vector", "link"]


@dataclass(frozen=True, slots=True)
class Share:
    """Of ``buffer`` a task touches part ``part`` of ``parts`` disjoint ones, whose bounds are known at run time only.

    Tasks that touch other parts do not depend on it. The first and the last user of a buffer name no share, so that
    other buffers in the same place wait for all parts.
    """

    buffer: ScratchBuffer
    part: int
    parts: int


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of one engine's stream that belongs to one graph operation.

    Attributes:
        engine: whose stream it is in.
        name: unique name, for printing.
        op: name of the graph operation (or region) it serves; with ``loc`` its provenance.
        kind: kind of work, for the report.
        prologue: what may run before the data of other engines arrive (scalar work, row opening, zeroing).
        body: the rest.
        reads, writes: scratch buffers touched.
        shares: which of them it touches only a part of.
        predicate: flag bit of the argument block without which the task does nothing (its signals still count).
    """

    engine: Engine
    name: str
    op: str
    kind: TaskKind
    loc: str
    body: tuple[Item, ...]
    reads: tuple[ScratchBuffer, ...] = ()
    writes: tuple[ScratchBuffer, ...] = ()
    prologue: tuple[Item, ...] = ()
    predicate: int | None = None
    shares: tuple[Share, ...] = ()

    def __str__(self) -> str:
        head = f"{self.engine.name.lower()} {self.kind} {self.name}  // {self.op}  {self.loc}"
        io = f"  reads {', '.join(map(str, self.reads)) or '-'}; writes {', '.join(map(str, self.writes)) or '-'}"
        early = f"\n  early:\n{indent(self.prologue)}" if self.prologue else ""
        return f"{head}\n{io}{early}\n{indent(self.body)}"


def walk(items: Sequence[Item]) -> Iterator[Item]:
    """Every item, loops before their bodies."""
    for item in items:
        yield item
        if isinstance(item, (Loop, PassLoop)):
            yield from walk(item.body)
