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
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tests.support.random_statements import (
    ARGUMENT_WORDS,
    HOST_BYTES,
    OWN_WORDS,
    READ_ONLY_WORDS,
    ROWS,
    SLOTS,
    TABLE_WORD,
    StatementWriter,
    StreamBuilder,
)
from wordline.isa import instruction_set
from wordline.isa.affine import Affine, affine
from wordline.isa.declare import Engine, InstructionSet
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream
from wordline.machines import Machine

FINAL_ROW = 2  # of the used rows: where the last phase dumps the buffer

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
            StreamBuilder(i, engine, mask, self.random.randrange(16) * 4 + i, READ_ONLY_WORDS + i * OWN_WORDS)
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
            writer = StatementWriter(self, stream, *zones[stream.index])
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
