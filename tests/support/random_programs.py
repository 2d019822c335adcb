"""Random device programs for differential tests: valid, race-free, over every instruction.

A program is a sequence of phases with a barrier after each. In a phase every stream owns a part of scratch (one zone of
every channel, or all of it), its own argument words and half of the shared registers, so any interleaving gives the
same result. Registers belong to classes with a fixed range, so register-dependent operands stay in range without any
analysis: r2-r7 loop indices and r8-r10 in 0..3, r11-r14 in 0..15, r15-r18 in 0..63, the others hold anything.

The state that a program leaves (accumulators, buffer, shared registers) is made visible by its last phase, so that
devices can be compared by DRAM rows, scratch, controller memory and host memory alone (:func:`run_case`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wordline.isa import instruction_set
from wordline.isa.affine import Affine, affine
from wordline.isa.declare import Engine, InstructionSet
from wordline.isa.gddr6_aim.vector import FIRST_RESULT, FIRST_SCALAR, VECTOR_OPS
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream
from wordline.machines import Machine

LOOP_REGISTERS = tuple(range(2, 8))
#: Range (inclusive upper end) of each class of registers -> its registers.
CLASSES = {3: (8, 9, 10), 15: (11, 12, 13, 14), 63: (15, 16, 17, 18)}
WILD = tuple(range(19, 32))
ROWS = 6
FINAL_ROW = 2  # of the used rows: where the last phase dumps the buffer
HOST_BYTES = 4096
SLOTS = (0, 2)
READ_ONLY_WORDS = 16
OWN_WORDS = 16
ARGUMENT_WORDS = 512
TABLE_WORD = 4096

#: Extents of vector passes.
SHAPES = ((1, 1, 64), (1, 1, 200), (3, 5, 8), (2, 2, 16), (4, 1, 6), (1, 7, 1), (2, 3, 100), (1, 1, 1), (0, 4, 4))

U8 = npt.NDArray[np.uint8]


class Device(Protocol):
    """What the reference and the native functional model have in common."""

    def load_program(self, image: bytes) -> int: ...
    def bank_write(self, first_row: int, rows: int, data: Any) -> None: ...
    def bank_read(self, first_row: int, rows: int) -> bytes: ...
    def cmem_write(self, word: int, values: Any) -> None: ...
    def cmem_read(self, word: int, count: int) -> Any: ...
    def scratch(self) -> Any: ...
    def map_host(self, buffer: Any) -> int: ...


@dataclass
class Case:
    """A program and the state it starts from."""

    seed: int
    program: Program
    argument_base: int
    first_row: int
    bank_image: npt.NDArray[np.uint16]
    scratch: U8
    words: npt.NDArray[np.int32]
    table: npt.NDArray[np.int32]
    host: tuple[U8, U8]


@dataclass
class Outcome:
    """What a device shows after a case."""

    banks: bytes
    scratch: bytes
    words: bytes
    host: bytes

    def difference(self, other: Outcome) -> str:
        """Where two outcomes differ first, empty if nowhere."""
        for name in ("words", "scratch", "banks", "host"):
            a, b = (np.frombuffer(getattr(o, name), dtype=np.uint8) for o in (self, other))
            if a.size != b.size:
                return f"{name}: {a.size} and {b.size} bytes"
            if (a != b).any():
                at = np.flatnonzero(a != b)
                return f"{name}: {at.size} bytes differ, the first at {at[0]}: {a[at[0]]} and {b[at[0]]}"
        return ""


def prepare_case(device: Device, case: Case) -> tuple[int, tuple[U8, U8]]:
    """Bring a fresh device into the starting state; returns the slot of the program and the host buffers."""
    slot = device.load_program(case.program.to_bytes())
    device.bank_write(case.first_row, ROWS, case.bank_image.tobytes())
    device.scratch()[:] = case.scratch
    host = (case.host[0].copy(), case.host[1].copy())
    words = case.words.copy()
    for position, buffer in zip(SLOTS, host, strict=True):
        words[position : position + 2] = np.array([device.map_host(buffer)], dtype=np.uint64).view(np.int32)
    device.cmem_write(case.argument_base, words)
    device.cmem_write(TABLE_WORD, case.table)
    return slot, host


def observe(device: Device, case: Case, host: tuple[U8, U8]) -> Outcome:
    """The visible state of a device; host addresses, which devices choose themselves, are left out."""
    words = np.asarray(device.cmem_read(case.argument_base, ARGUMENT_WORDS), dtype=np.int32).copy()
    words[: max(SLOTS) + 2] = 0
    return Outcome(
        bytes(device.bank_read(case.first_row, ROWS)),
        np.asarray(device.scratch()).tobytes(),
        words.tobytes(),
        host[0].tobytes() + host[1].tobytes(),
    )


def run_case(device: Device, case: Case, execute: Callable[[int, int], Any]) -> Outcome:
    """Run a case on a fresh device; ``execute(slot, argument_base)`` is the device's own call."""
    slot, host = prepare_case(device, case)
    execute(slot, case.argument_base)
    return observe(device, case, host)


def random_case(seed: int, machine: Machine, *, phases: int = 3, length: int = 12, row_commands: bool = True) -> Case:
    """A random case.

    Args:
        seed: the same seed gives the same case.
        machine: 2 to 8 channels; sizes are taken from it.
        phases: number of phases before the last one.
        length: statements of each stream in a phase, at most.
        row_commands: emit ACT16, PREA, REF and TMOD too (they change no data).
    """
    return _Generator(seed, machine, length, row_commands).case(phases)


def faulting_case(seed: int, machine: Machine) -> tuple[Case, int, int, int]:
    """A case whose last instruction in some stream faults; also returns stream, channel and instruction of the fault.

    The others do nothing in that phase, and channel streams fault on one channel only, so the fault does not depend on
    the interleaving.
    """
    generator = _Generator(seed, machine, 3, False)
    return generator.faulting_case()


def special_bf16(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
    """bf16 bits: mostly of moderate size, with zeros, subnormals, infinities, NaNs and huge values among them."""
    moderate = rng.integers(0x3E00, 0x4100, shape, dtype=np.uint16) | rng.integers(0, 2, shape, dtype=np.uint16) << 15
    anything = rng.integers(0, 1 << 16, shape, dtype=np.uint16)
    specials = rng.choice(np.array([0, 0x8000, 1, 0x7F80, 0xFF80, 0x7FC1, 0x7F7F], dtype=np.uint16), shape)
    kind = rng.integers(0, 64, shape)
    return np.where(kind == 0, specials, np.where(kind == 1, anything, moderate)).astype(np.uint16)


@dataclass
class _StreamBuilder:
    index: int
    engine: Engine
    mask: int
    barrier: int  # its barrier signal
    own_words: int  # first argument word that it alone uses
    instrs: list[Instr] = field(default_factory=list)


class _Generator:
    def __init__(self, seed: int, machine: Machine, length: int, row_commands: bool) -> None:
        self.seed = seed
        self.machine = machine
        self.isa: InstructionSet = instruction_set(machine.generation)
        self.random = random.Random(seed)
        self.length = length
        self.row_commands = row_commands
        organisation = machine.organisation
        self.channels = organisation.channels
        self.banks, self.columns = organisation.banks, organisation.columns
        self.first_row = organisation.rows - ROWS
        self.bpc = machine.scratch.bytes_per_channel
        self.zone_bytes = self.bpc // 3 // 32 * 32
        self.space = self.channels * self.bpc
        self.argument_base = self.random.randrange(0, 1024)
        everyone = (1 << self.channels) - 1
        masks = [everyone] if self.random.random() < 0.7 else [1, everyone ^ 1]
        engines = [(Engine.CHANNEL, mask) for mask in masks] + [(Engine.VECTOR, 0), (Engine.LINK, 0)]
        self.streams = [
            _StreamBuilder(i, engine, mask, self.random.randrange(16) * 4 + i, READ_ONLY_WORDS + i * OWN_WORDS)
            for i, (engine, mask) in enumerate(engines)
        ]
        self.next_signal = 64
        self.phase = 0

    # --- the whole case

    def case(self, phases: int) -> Case:
        for _ in range(phases):
            self.random_phase()
        self.last_phase()
        return self.finish()

    def finish(self) -> Case:
        rng = np.random.default_rng(self.seed)
        streams = tuple(Stream(s.engine, s.mask, tuple(s.instrs)) for s in self.streams)
        lanes = self.machine.organisation.column_bytes // 2
        scratch = special_bf16(rng, (self.space // 2,))
        words = rng.integers(-(1 << 31), 1 << 31, ARGUMENT_WORDS, dtype=np.int64).astype(np.int32)
        words[:8] = rng.integers(-2, 64, 8)
        host = tuple(special_bf16(rng, (HOST_BYTES // 2,)).view(np.uint8) for _ in SLOTS)
        return Case(
            self.seed,
            Program(self.isa, streams),
            self.argument_base,
            self.first_row,
            special_bf16(rng, (ROWS, self.channels, self.banks, self.columns, lanes)),
            scratch.view(np.uint8),
            words,
            rng.integers(-(1 << 31), 1 << 31, 64, dtype=np.int64).astype(np.int32),
            (host[0], host[1]),
        )

    def random_phase(self) -> None:
        if self.random.random() < 0.25:
            owner = self.random.choice(self.streams)
            zones = {s.index: (0, self.bpc) if s is owner else (0, 0) for s in self.streams}
        else:
            order = self.random.sample(range(3), 3)
            zones = {s.index: (order[s.engine.value] * self.zone_bytes, self.zone_bytes) for s in self.streams}
        signals: list[tuple[int, int]] = []  # produced in this phase by streams before: number, total count
        for stream in self.streams:
            writer = _Writer(self, stream, *zones[stream.index])
            for signal, total in signals:
                if self.random.random() < 0.4:
                    writer.wait_for(signal, total)
            for _ in range(self.random.randint(1, self.length)):
                writer.statement()
            if self.random.random() < 0.5:
                signals.append(writer.produce(self.take_signal()))
        self.barrier()

    def take_signal(self) -> int:
        self.next_signal += 1
        return self.next_signal - 1

    def barrier(self) -> None:
        self.phase += 1
        for stream in self.streams:
            stream.instrs.append(make(self.isa, "SIGNAL", signal=stream.barrier))
        for stream in self.streams:
            for other in self.streams:
                if other is not stream:
                    stream.instrs.append(make(self.isa, "WAIT", signal=other.barrier, value=self.phase))

    def last_phase(self) -> None:
        """Make hidden state visible: accumulators in scratch, the buffer in DRAM, registers in argument words."""
        accumulators = self.machine.bank_unit.accumulators
        for stream in self.streams:
            add = stream.instrs.append
            if stream.engine is Engine.CHANNEL:
                add(make(self.isa, "RDMAC16", accumulator=0, count=accumulators, target=0))
                count = min(self.machine.buffer.columns, self.columns)
                add(make(self.isa, "WRCP", bank=1, row=self.first_row + FINAL_ROW, column=0, buffer=0, count=count))
                # Registers too: r1 keeps channels apart.
                for register in range(2, 32):
                    index = affine(self.shared_words() + 64 + register, (1, 32))
                    add(make(self.isa, "STA", index=index, value=Affine(0, ((register, 1),))))
            elif stream.engine is Engine.VECTOR:
                for shared in range(32):
                    add(make(self.isa, "GETS", rd=31, shared=shared))
                    add(make(self.isa, "STA", index=self.shared_words() + shared, value=Affine(0, ((31, 1),))))

    def shared_words(self) -> int:
        return READ_ONLY_WORDS + OWN_WORDS * 4

    def faulting_case(self) -> tuple[Case, int, int, int]:
        self.random_phase()
        stream = self.random.choice(self.streams)
        channel = max(c for c in range(self.channels) if stream.mask >> c & 1) if stream.mask else 0
        # `late` is 0 on every channel but the last one of the stream.
        stream.instrs.append(make(self.isa, "EQ", rd=31, a=Affine(0, ((1, 1),)), b=channel))
        late = (31, 1)
        instr = self.random.choice(self.faults(stream.engine))(late)
        stream.instrs.append(instr)
        return self.finish(), stream.index, channel, len(stream.instrs) - 1

    def faults(self, engine: Engine) -> list[Callable[[tuple[int, int]], Instr]]:
        isa, organisation = self.isa, self.machine.organisation
        rows, columns, banks = organisation.rows, organisation.columns, organisation.banks
        buffer, accumulators = self.machine.buffer.columns, self.machine.bank_unit.accumulators
        words = self.machine.command_processor.controller_memory_bytes // 4
        common: list[Callable[[tuple[int, int]], Instr]] = [
            lambda late: make(isa, "LDM", rd=30, address=affine(words - 1, late)),
            lambda late: make(isa, "LDA", rd=30, index=affine(words - 1 - self.argument_base, late)),
            lambda late: make(isa, "STA", index=affine(0, (31, -1)), value=1),
        ]
        if engine is Engine.CHANNEL:
            return [
                *common,
                lambda late: make(isa, "MAC16", row=affine(rows - 1, late), count=1),
                lambda late: make(isa, "MAC16", row=0, column=affine(columns - 4, late), count=4),
                lambda late: make(isa, "MAC16", buffer=affine(buffer - 2, late), count=2),
                lambda late: make(isa, "MAC", bank=affine(banks - 1, late), count=1),
                lambda late: make(isa, "MAC", accumulator=affine(accumulators - 1, late), count=1),
                lambda late: make(isa, "RDMAC16", accumulator=affine(accumulators - 3, late), count=3),
                lambda late: make(isa, "RD", count=2, target=affine(self.bpc - 64, (31, 32))),
                lambda late: make(isa, "WR", count=1, source=affine(0, (31, 2))),
                lambda late: make(isa, "WRGB", count=1, source=affine(0, (31, -32))),
                lambda late: make(isa, "WRE", source=affine(2, late), lanes=1),
                lambda late: make(isa, "WRMAC16", count=2, advance=1, source=affine(self.bpc - 64, (31, 32))),
                lambda late: make(isa, "ACT16", row=affine(0, (31, -1))),
            ]
        if engine is Engine.VECTOR:
            layout = {"s2": 4, "dtype": 1}
            operand = {"base": affine(0, (31, 2)), "layout": layout}
            odd = {"base": 0, "layout": {"s2": 2, "rotate": 1}}
            result = {"base": affine(0, (31, 2)), "layout": layout, "broadcast": {"value": 0}}
            source = {"base": 0, "layout": layout}
            return [
                *common,
                lambda late: make(isa, "VPASS", n0=1, n1=1, n2=8, high=8, operands=[operand]),
                lambda late: make(isa, "VPASS", n0=1, n1=1, n2=8, high=8, operands=[source], result=[result]),
                lambda late: make(isa, "VPASS", n0=1, n1=1, n2=affine(8, late), high=8, operands=[odd]),
                lambda late: make(isa, "VPASS", n0=1, n1=2, n2=affine(self.space // 2, late), operands=[source]),
            ]
        return [
            *common,
            lambda late: make(isa, "XOUT", slot=0, blocks=1, bytes=affine(HOST_BYTES, late)),
            lambda late: make(isa, "XIN", slot=2, blocks=1, bytes=4, offset=affine(0, (31, -1))),
            lambda late: make(isa, "XIN", slot=2, blocks=1, bytes=affine(self.space, late), offset=-1),
        ]


class _Writer:
    """Writes the statements of one stream in one phase."""

    def __init__(self, generator: _Generator, stream: _StreamBuilder, zone: int, zone_bytes: int) -> None:
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
                self.emit("REF")
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
