"""Random statements of one stream, for :mod:`tests.support.random_programs`.

Every operand stays in range whatever happened before, because registers belong to classes with a fixed range.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from wordline.isa.affine import Affine, affine
from wordline.isa.controller.vector import FIRST_RESULT, FIRST_SCALAR, VECTOR_OPS
from wordline.isa.declare import Engine, InstructionSet
from wordline.isa.instruction import Instr, make
from wordline.machines import Machine

LOOP_REGISTERS = tuple(range(2, 8))
#: Range (inclusive upper end) of each class of registers -> its registers.
CLASSES = {3: (8, 9, 10), 15: (11, 12, 13, 14), 63: (15, 16, 17, 18)}
WILD = tuple(range(19, 32))
ROWS = 6
HOST_BYTES = 4096
SLOTS = (0, 2)
READ_ONLY_WORDS = 16
OWN_WORDS = 16
ARGUMENT_WORDS = 512
TABLE_WORD = 4096

#: Extents of vector passes.
SHAPES = ((1, 1, 64), (1, 1, 200), (3, 5, 8), (2, 2, 16), (4, 1, 6), (1, 7, 1), (2, 3, 100), (1, 1, 1), (0, 4, 4))


@dataclass
class StreamBuilder:
    """A stream as it grows."""

    index: int
    engine: Engine
    mask: int
    barrier: int  # its barrier signal
    own_words: int  # first argument word that it alone uses
    instrs: list[Instr] = field(default_factory=list)


class Surroundings(Protocol):
    """What a writer has to know of the whole program."""

    isa: InstructionSet
    machine: Machine
    random: random.Random
    row_commands: bool
    phase: int
    channels: int
    banks: int
    columns: int
    first_row: int
    bpc: int  # scratch bytes of a channel
    space: int  # of all channels


class StatementWriter:
    """Writes the statements of one stream in one phase."""

    def __init__(self, generator: Surroundings, stream: StreamBuilder, zone: int, zone_bytes: int) -> None:
        self.g = generator
        self.random = generator.random
        self.stream = stream
        self.zone, self.zone_bytes = zone, zone_bytes
        self.depth = 0
        self.commands = {
            Engine.CHANNEL: (
                self.mac16,
                self.mac,
                self.rd,
                self.wr,
                self.wre,
                self.rdcp,
                self.wrcp,
                self.wrgb,
                self.wrmac16,
                self.rdmac16,
            ),
            Engine.VECTOR: (self.vpass,),
            Engine.LINK: (self.transfer,),
        }[stream.engine]

    def emit(self, name: str, **values: Any) -> None:
        self.stream.instrs.append(make(self.g.isa, name, **values))

    # --- operands

    def within(self, low: int, high: int, step: int = 1) -> Affine:
        """An operand that is always low plus a multiple of ``step``, up to ``high``; with registers where they fit."""
        steps = (high - low) // step
        terms: list[tuple[int, int]] = []
        imm = 0
        for _ in range(2):
            fitting = [top for top in CLASSES if top <= steps]
            choice = self.random.random()
            if choice < 0.35 and fitting:
                top = self.random.choice(fitting)
                register = self.random.choice(CLASSES[top])
            elif choice < 0.7 and steps >= 3:
                top, register = 3, self.random.choice(LOOP_REGISTERS)
            elif choice < 0.8 and self.g.channels - 1 <= steps:
                top, register = self.g.channels - 1, 1
            else:
                continue
            scale = self.random.choice([1, max(1, min(steps // max(top, 1), 16383 // step))])
            if scale * step > 16383 or any(register == used for used, _ in terms):
                continue
            if self.random.random() < 0.3:
                terms.append((register, -scale * step))
                imm += top * scale
            else:
                terms.append((register, scale * step))
            steps -= top * scale
        imm += self.random.choice([0, steps, self.random.randint(0, max(steps, 0))])
        return affine(low + imm * step, *terms)

    def wild(self) -> Affine:
        """An operand of any value."""
        strides = [1, -1, 3, 16383, -16384]
        terms = [(r, self.random.choice(strides)) for r in self.random.sample(WILD, self.random.randint(0, 2))]
        return affine(self.random.choice([0, 1, -1, self.random.randint(-(1 << 23), (1 << 23) - 1)]), *terms)

    def row(self) -> Affine:
        return self.within(self.g.first_row, self.g.first_row + ROWS - 1)

    def bank(self) -> Affine:
        return self.within(0, self.g.banks - 1)

    def burst(self, *limits: int) -> tuple[Affine, list[Affine]]:
        """A burst length and first positions so that position + length stays within each limit."""
        if self.random.random() < 0.1:  # nothing happens, whatever the other operands are
            return affine(self.random.choice([0, -5])), [self.wild() for _ in limits]
        most = min(limits)
        longest = self.random.choice([1, 2, min(5, most), most])
        length = self.within(1, longest)
        return length, [self.within(0, limit - longest) for limit in limits]

    def scratch(self, columns: int) -> Affine:
        last = self.zone + self.zone_bytes - 32 * columns
        return self.within(self.zone, last, 32)

    # --- statements

    def statement(self) -> None:
        choice = self.random.random()
        if choice < 0.2 and self.depth < 3:
            self.loop()
        elif choice < 0.35:
            self.scalar()
        elif choice < 0.4 and self.g.row_commands and self.stream.engine is Engine.CHANNEL:
            self.row_command()
        elif self.zone_bytes or self.stream.engine is Engine.CHANNEL:
            self.random.choice(self.commands)()

    def loop(self) -> None:
        at = len(self.stream.instrs)
        register = LOOP_REGISTERS[self.depth * 2 + self.random.randint(0, 1)]
        count = self.random.choice([affine(self.random.randint(-1, 4)), affine(1, (self.random.choice(CLASSES[3]), 1))])
        if self.random.random() < 0.2 and self.g.channels <= 4:
            count = affine(0, (1, 1))
        self.emit("LOOP", rd=register, count=count)
        self.depth += 1
        for _ in range(self.random.randint(0, 3)):
            self.statement()
        self.depth -= 1
        body = len(self.stream.instrs) - at - 1
        self.stream.instrs[at] = make(self.g.isa, "LOOP", rd=register, count=count, body=body)

    def wait_for(self, signal: int, total: int) -> None:
        if self.random.random() < 0.5:
            at = len(self.stream.instrs)
            self.emit("LOOP", rd=7, count=total, body=2)
            self.emit("WAIT", signal=signal, value=affine(1, (7, 1)))
            self.emit("ADD", rd=self.random.choice(WILD), a=self.wild(), b=affine(0, (7, 1)))
            assert len(self.stream.instrs) == at + 3
        else:
            self.emit("WAIT", signal=signal, value=self.random.choice([0, -3, total, 1]))

    def produce(self, signal: int) -> tuple[int, int]:
        total = self.random.randint(1, 4)
        if self.random.random() < 0.5:
            self.emit("LOOP", rd=6, count=total, body=1)
            self.emit("SIGNAL", signal=signal)
        else:
            for _ in range(total):
                self.emit("SIGNAL", signal=signal)
        return signal, total

    def scalar(self) -> None:
        rd = self.random.choice(WILD)
        match self.random.randint(0, 6):
            case 0:  # a register of a class with a range
                top = self.random.choice(list(CLASSES))
                self.emit("AND", rd=self.random.choice(CLASSES[top]), a=self.wild(), b=top)
            case 1:
                name, rd = self.random.choice(["LT", "EQ"]), self.random.choice(CLASSES[3])
                self.emit(name, rd=rd, a=self.wild(), b=self.wild())
            case 2:
                self.emit(
                    "LDA", rd=rd, index=self.random.choice([self.within(4, READ_ONLY_WORDS - 1), self.own_word()])
                )
            case 3:
                self.emit("LDM", rd=rd, address=self.within(TABLE_WORD, TABLE_WORD + 63))
            case 4:
                self.emit("STA", index=self.own_word(), value=self.wild())
            case 5 if self.stream.engine is not Engine.VECTOR:
                self.emit("GETS", rd=rd, shared=self.random.randrange(16) + (self.g.phase + 1) % 2 * 16)
            case _:
                name = self.random.choice(["ADD", "SUB", "MUL", "SHL", "SHR", "AND", "OR", "MIN", "LT", "EQ"])
                self.emit(name, rd=rd, a=self.wild(), b=self.wild())

    def own_word(self) -> Affine:
        """An argument word that only this stream on this channel uses."""
        channels = self.g.channels if self.stream.engine is Engine.CHANNEL and self.g.channels <= OWN_WORDS else 1
        slot = self.random.randrange(OWN_WORDS // channels)
        return affine(self.stream.own_words + slot * channels, *([(1, 1)] if channels > 1 else []))

    def row_command(self) -> None:
        match self.random.randint(0, 4):
            case 0:
                self.emit("TMOD", mode=self.random.randint(0, 1))
            case 1:
                self.emit("PREA")
                self.emit("REF", when=self.random.randint(0, 1))
            case 2:
                self.emit("PRE", bank=self.bank())
            case 3:
                self.emit("PREA")
                self.emit("ACT", bank=self.bank(), row=self.row())
            case _:
                self.emit("PREA")
                self.emit("ACT16", row=self.row())

    # --- channel commands

    def mac16(self) -> None:
        count, (column, buffer) = self.burst(self.g.columns, self.g.machine.buffer.columns)
        self.emit("MAC16", row=self.row(), column=column, buffer=buffer, accumulator=self.accumulator(), count=count)

    def mac(self) -> None:
        count, (column, buffer) = self.burst(self.g.columns, self.g.machine.buffer.columns)
        operands = {"row": self.row(), "column": column, "buffer": buffer, "accumulator": self.accumulator()}
        self.emit("MAC", bank=self.bank(), count=count, **operands)

    def accumulator(self) -> Affine:
        return self.within(0, self.g.machine.bank_unit.accumulators - 1)

    def _scratch_burst(self, limit: int) -> tuple[Affine, Affine, Affine] | None:
        """Length, first position below ``limit``, scratch offset; none if this stream owns no scratch."""
        if not self.zone_bytes:
            return None
        fitting = self.zone_bytes // 32
        count, (first, _) = self.burst(limit, fitting)
        return count, first, self.scratch(min(limit, fitting))

    def rd(self) -> None:
        if burst := self._scratch_burst(self.g.columns):
            count, column, target = burst
            self.emit("RD", bank=self.bank(), row=self.row(), column=column, count=count, target=target)

    def wr(self) -> None:
        if burst := self._scratch_burst(self.g.columns):
            count, column, source = burst
            self.emit("WR", bank=self.bank(), row=self.row(), column=column, count=count, source=source)

    def wre(self) -> None:
        if self.zone_bytes:
            source = self.within(self.zone, self.zone + self.zone_bytes - 2, 2)
            lanes = self.random.choice([self.wild(), affine(self.random.getrandbits(16))])
            column = self.within(0, self.g.columns - 1)
            self.emit("WRE", bank=self.bank(), row=self.row(), column=column, source=source, lanes=lanes)

    def rdcp(self) -> None:
        count, (column, buffer) = self.burst(self.g.columns, self.g.machine.buffer.columns)
        self.emit("RDCP", bank=self.bank(), row=self.row(), column=column, buffer=buffer, count=count)

    def wrcp(self) -> None:
        count, (column, buffer) = self.burst(self.g.columns, self.g.machine.buffer.columns)
        self.emit("WRCP", bank=self.bank(), row=self.row(), column=column, buffer=buffer, count=count)

    def wrgb(self) -> None:
        if burst := self._scratch_burst(self.g.machine.buffer.columns):
            count, buffer, source = burst
            self.emit("WRGB", buffer=buffer, count=count, source=source)

    def wrmac16(self) -> None:
        if burst := self._scratch_burst(self.g.machine.bank_unit.accumulators):
            count, accumulator, source = burst
            advance = self.random.randint(0, 1)
            self.emit("WRMAC16", advance=advance, accumulator=accumulator, count=count, source=source)

    def rdmac16(self) -> None:
        if burst := self._scratch_burst(self.g.machine.bank_unit.accumulators):
            count, accumulator, target = burst
            self.emit("RDMAC16", accumulator=accumulator, count=count, target=target)

    # --- vector passes

    def vpass(self) -> None:
        shape = self.random.choice(SHAPES)
        n = shape[0] * shape[1] * shape[2]
        extents = [affine(e) if self.random.random() < 0.8 else self.within(0, e) for e in shape]
        even = extents[2].is_constant and extents[2].imm % 2 == 0
        n_operands, n_scalars = self.random.randint(0, 4), self.random.randint(0, 8)
        n_operations = self.random.randint(0, 16)
        if n_operands + n_scalars == 0:
            n_operands = 1
        values = list(range(n_operands)) + list(range(FIRST_SCALAR, FIRST_SCALAR + n_scalars))
        operations = []
        for position in range(n_operations):
            recent = values[-3:] if self.random.random() < 0.6 else values
            op = self.random.choice(VECTOR_OPS)
            sources = dict(zip("abc"[: op.arity], (self.random.choice(recent) for _ in range(op.arity)), strict=True))
            operations.append({"operation": {"op": op.code, **sources}})
            values.append(FIRST_RESULT + position)
        last = values[-1] if self.random.random() < 0.7 else self.random.choice(values)
        result = []
        if self.random.random() < 0.85:
            broadcast = {
                "channels": self.random.choice([0, 0, self.random.randrange(1 << self.g.channels)]),
                "value": last,
            }
            result = [{**self.operand(shape, even, result=True), "broadcast": broadcast}]
        half = self.g.phase % 2 * 16
        reductions = [
            {
                "reduction": {
                    "kind": self.random.randrange(3),
                    "value": self.random.choice(values),
                    "shared": self.random.randrange(16) + half,
                }
            }
            for _ in range(self.random.choice([0, 0, 1, 2]))
        ]
        self.emit(
            "VPASS",
            n0=extents[0],
            n1=extents[1],
            n2=extents[2],
            low=self.random.choice([affine(0), affine(-3), self.within(0, n // 2)]),
            high=self.random.choice([affine(n), affine(n + 9), self.within(0, n), affine(-1)]),
            operands=[self.operand(shape, even, result=False) for _ in range(n_operands)],
            scalars=[self.pass_scalar() for _ in range(n_scalars)],
            operations=operations,
            result=result,
            reductions=reductions,
        )

    def operand(self, shape: tuple[int, int, int], even: bool, result: bool) -> dict[str, Any]:
        """A layout whose elements all lie in this stream's zone of some channels."""
        dtype = self.random.randrange(2 if result else 3)
        size = (2, 4, 4)[dtype]
        kind = self.random.randint(0, 3)
        contiguous = (shape[1] * shape[2] * size, shape[2] * size, size)
        if kind <= 1:
            strides = list(contiguous)
        elif kind == 2:  # outer index over tokens, middle over channels: how attention scores lie
            strides = [shape[2] * size, 0, size]
        else:
            strides = [
                size * self.random.randint(-30, 30),
                size * self.random.randint(-30, 30),
                size * self.random.randint(-10, 10),
            ]
        if not result and self.random.random() < 0.2:
            strides[self.random.randrange(3)] = 0
        if sum(max(n - 1, 0) * abs(s) for n, s in zip(shape, strides, strict=True)) > self.zone_bytes - 2 * size:
            strides = [0, 0, 0]
        reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 0]
        below, above = -sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
        low, high = self.zone + below, self.zone + self.zone_bytes - above - size
        if self.zone_bytes == self.g.bpc:  # all of scratch is ours: anywhere, wrapping included
            low, high = 0, self.g.space - size
        low = -(-low // size) * size
        base = self.within(low, high // size * size, size)
        # Any channel for the origin and channel strides for the outer indices; the space is cyclic.
        base = affine(base.imm + self.random.randint(-2, self.g.channels) * self.g.bpc, *base.terms)
        for index in (0, 1):
            if self.random.random() < 0.3 or (kind == 2 and index == 1):
                strides[index] += self.random.choice([1, 1, -1]) * self.g.bpc
        layout = {"s0": strides[0], "s1": strides[1], "s2": strides[2], "dtype": dtype}
        if even and self.random.random() < 0.2:
            layout["rotate"] = 1
        return {"base": base, "layout": layout}

    def pass_scalar(self) -> dict[str, Any]:
        kind = self.random.randrange(4)
        if kind == 0:
            number = self.random.choice([0.5, -1.25, 3e-39, 1e30, 0.0, float("inf"), self.random.uniform(-20, 20)])
            value = int(np.float32(number).view(np.uint32))
        elif kind == 2:
            value = self.random.randrange(32)
        else:
            value = self.random.randrange(32)  # this stream writes them all, so it may read them all
        return {"scalar": {"kind": kind, "value": value}}

    # --- link transfers

    def transfer(self) -> None:
        name = self.random.choice(["XOUT", "XIN"])
        blocks, size = self.random.choice([(1, 64), (4, 32), (2, 7), (3, 0), (-1, 5), (5, 100)])
        total = max(blocks, 0) * size
        if self.zone_bytes == self.g.bpc:
            scratch, stride = affine(self.random.randint(-self.g.space, self.g.space)), self.random.randint(-3000, 3000)
        else:
            stride = self.random.choice([size, size + 3, self.g.bpc, self.g.bpc - size, 0])
            drift = stride if stride < self.g.bpc // 2 else stride - self.g.bpc
            reach = max(blocks - 1, 0) * drift
            low, high = self.zone + max(0, -reach), self.zone + self.zone_bytes - size - max(0, reach)
            scratch = self.within(low, high)
            scratch = affine(scratch.imm + self.random.randint(-1, self.g.channels) * self.g.bpc, *scratch.terms)
        self.emit(
            name,
            slot=self.random.choice(SLOTS),
            scratch=scratch,
            stride=stride,
            blocks=blocks,
            bytes=size,
            offset=self.within(0, HOST_BYTES - total),
        )
