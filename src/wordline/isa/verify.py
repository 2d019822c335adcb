"""Static verification of a program against a machine: everything that can be known before it runs.

A verified program has a meaning for every instruction; what is left to run time are the values of registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from wordline.errors import WordlineError
from wordline.isa.affine import Affine
from wordline.isa.bounds import Bounds
from wordline.isa.controller.control import FIRST_WRITABLE_REGISTER
from wordline.isa.controller.vector import (
    DTYPES,
    FIRST_RESULT,
    FIRST_SCALAR,
    HOST_DTYPES,
    MAX_OPERANDS,
    MAX_OPERATIONS,
    MAX_REDUCTIONS,
    MAX_SCALARS,
    OP_BY_CODE,
    REDUCTIONS,
    RESULT_DTYPES,
    SCALAR_KINDS,
)
from wordline.isa.declare import Engine, OperandError
from wordline.isa.disassemble import format_head
from wordline.isa.instruction import Instr, encoded_length
from wordline.isa.program import Program, Stream
from wordline.machines import Machine

RECOMPILE = "recompile the model for this machine"


@dataclass(frozen=True)
class _Place:
    stream: int
    index: int
    instr: Instr

    def fail(self, code: str, what: str, remedy: str = RECOMPILE) -> NoReturn:
        where = f"stream {self.stream}, instruction {self.index}: {format_head(self.instr)}"
        raise WordlineError(code, what, where=where, remedy=remedy)


def verify_program(program: Program, machine: Machine) -> None:
    """Raise ``WordlineError`` for the first thing that ``machine`` cannot run.

    Codes: "wrong-generation", "program-too-large", "bad-stream", "bad-register", "bad-loop", "bad-signal", "bad-pass",
    "out-of-range", "bad-operand". The message names stream and instruction.
    """
    if program.isa.generation != machine.generation:
        raise WordlineError(
            "wrong-generation",
            f"the program is for {program.isa.generation}, the machine {machine.name} is {machine.generation}",
            remedy=RECOMPILE,
        )
    _check_size(program, machine)
    _check_engines(program, machine)
    bounds = Bounds.of(machine)
    for place in _places(program):
        _check_instruction(place, program.streams[place.stream].engine, machine, bounds)
    for number, stream in enumerate(program.streams):
        _check_loops(number, stream, machine)
    _check_signals(program, machine)


def _places(program: Program) -> Iterator[_Place]:
    for number, stream in enumerate(program.streams):
        for index, instr in enumerate(stream.instrs):
            yield _Place(number, index, instr)


def _check_size(program: Program, machine: Machine) -> None:
    size = 8 * sum(encoded_length(instr) for stream in program.streams for instr in stream.instrs)
    limit = machine.command_processor.instruction_memory_bytes
    if size > limit:
        raise WordlineError(
            "program-too-large",
            f"the program has {size} bytes of instructions, the device holds {limit}",
            remedy="compile fewer layers or fewer entry points into one program",
        )


def _check_engines(program: Program, machine: Machine) -> None:
    channels = machine.organisation.channels
    taken = 0
    seen: set[Engine] = set()
    for number, stream in enumerate(program.streams):

        def fail(what: str, number: int = number) -> NoReturn:
            raise WordlineError("bad-stream", what, where=f"stream {number}", remedy=RECOMPILE)

        mask = stream.channel_mask
        if stream.engine is Engine.CHANNEL:
            if not mask or mask >> channels:
                fail(f"channel mask {mask:#x} names no channel, or channels beyond the {channels} of the machine")
            if mask & taken:
                fail(f"channel mask {mask:#x}: a channel already has a stream")
            taken |= mask
            continue
        if mask:
            fail(f"a {stream.engine.name.lower()} stream has no channel mask, this one says {mask:#x}")
        if stream.engine in seen:
            fail(f"there is more than one {stream.engine.name.lower()} stream")
        if stream.engine is Engine.VECTOR and not machine.runs_vector_streams:
            fail("the machine has no vector unit")
        seen.add(stream.engine)


def _affines(instr: Instr) -> Iterator[tuple[str, Affine]]:
    for name, value in instr.words.items():
        if isinstance(value, Affine):
            yield name, value
    for group, entries in instr.groups.items():
        for number, entry in enumerate(entries):
            for name, value in entry.items():
                if isinstance(value, Affine):
                    yield f"{group}[{number}].{name}", value


def _check_instruction(place: _Place, engine: Engine, machine: Machine, bounds: Bounds) -> None:
    instr, processor = place.instr, machine.command_processor
    declaration = instr.declaration
    if engine not in declaration.engines:
        place.fail("bad-stream", f"{declaration.name} does not belong in a {engine.name.lower()} stream")
    for name, value in _affines(instr):
        for register, _ in value.terms:
            if register >= processor.registers:
                place.fail("bad-register", f"{name} reads r{register}, the machine has {processor.registers} registers")
    if declaration.writes_register and not FIRST_WRITABLE_REGISTER <= instr.fields["rd"] < processor.registers:
        last = processor.registers - 1
        place.fail(
            "bad-register", f"r{instr.fields['rd']} cannot be written; r{FIRST_WRITABLE_REGISTER} to r{last} can"
        )
    if declaration.name == "GETS":
        _check_shared(place, instr.fields["shared"], machine)
    if declaration.name == "VPASS":
        _check_pass(place, machine)
    known = {name: value.imm for name, value in instr.words.items() if isinstance(value, Affine) and value.is_constant}
    try:
        bounds.check(declaration, instr.fields | known)
    except OperandError as error:
        place.fail("out-of-range", str(error))
    if declaration.check is not None:
        try:
            declaration.check(instr)
        except OperandError as error:
            place.fail("bad-operand", str(error))


def _check_shared(place: _Place, number: int, machine: Machine) -> None:
    limit = machine.command_processor.shared_registers
    if number >= limit:
        place.fail("bad-register", f"shared register {number} does not exist; the machine has {limit}")


def _check_pass(place: _Place, machine: Machine) -> None:
    groups, unit = place.instr.groups, machine.vector_passes
    formats = [dtype for dtype in DTYPES if dtype not in HOST_DTYPES or not unit.present]
    for group, limit in (
        ("operands", min(unit.max_operands, MAX_OPERANDS)),
        ("scalars", min(unit.max_scalars, MAX_SCALARS)),
        ("operations", min(unit.max_ops, MAX_OPERATIONS)),
        ("reductions", min(unit.max_reductions, MAX_REDUCTIONS)),
    ):
        if len(groups[group]) > limit:
            place.fail("bad-pass", f"the pass has {len(groups[group])} {group}, the machine allows {limit}")

    def value(number: int, operations: int, user: str) -> None:
        if number < FIRST_SCALAR:
            exists = number < len(groups["operands"])
        elif number < FIRST_RESULT:
            exists = number - FIRST_SCALAR < len(groups["scalars"])
        else:
            exists = number - FIRST_RESULT < operations
        if not exists:
            place.fail("bad-pass", f"{user} uses value {number}, which does not exist there")

    for number, entry in enumerate(groups["operands"]):
        if DTYPES[entry["layout"].get("dtype", 0)] not in formats:
            place.fail("bad-pass", f"operands[{number}] has an element format that the machine lacks")
    for number, entry in enumerate(groups["scalars"]):
        kind, source = entry["scalar"].get("kind", 0), entry["scalar"].get("value", 0)
        if SCALAR_KINDS[kind] == "register_i32" and source >= machine.command_processor.registers:
            place.fail("bad-register", f"scalars[{number}] reads r{source}, which does not exist")
        if SCALAR_KINDS[kind].startswith("shared"):
            _check_shared(place, source, machine)
    for number, entry in enumerate(groups["operations"]):
        operation = entry["operation"]
        op = OP_BY_CODE.get(operation.get("op", 0))
        if op is None:
            place.fail("bad-pass", f"operations[{number}] is unknown: {operation['op']}")
        for source in ("a", "b", "c")[: op.arity]:
            value(operation.get(source, 0), number, f"operations[{number}]")
    for entry in groups["result"]:
        stored = [dtype for dtype in RESULT_DTYPES if dtype in formats]
        if DTYPES[entry["layout"].get("dtype", 0)] not in stored:
            place.fail("bad-pass", f"a pass stores {' or '.join(stored)}")
        if entry["broadcast"].get("channels", 0) >> machine.organisation.channels:
            place.fail("bad-pass", "the result goes to channels that the machine does not have")
        value(entry["broadcast"].get("value", 0), len(groups["operations"]), "the result")
    for number, entry in enumerate(groups["reductions"]):
        reduction = entry["reduction"]
        if reduction.get("kind", 0) >= len(REDUCTIONS):
            place.fail("bad-pass", f"reductions[{number}] is unknown: {reduction['kind']}")
        value(reduction.get("value", 0), len(groups["operations"]), f"reductions[{number}]")
        _check_shared(place, reduction.get("shared", 0), machine)


def _check_loops(number: int, stream: Stream, machine: Machine) -> None:
    ends: list[int] = []
    for index, instr in enumerate(stream.instrs):
        while ends and ends[-1] == index:
            ends.pop()
        if instr.name != "LOOP":
            continue
        place = _Place(number, index, instr)
        end = index + 1 + instr.fields["body"]
        limit = ends[-1] if ends else len(stream.instrs)
        if end > limit:
            of = "the loop around it" if ends else "the stream"
            place.fail("bad-loop", f"the loop body ends at instruction {end}, {of} at {limit}")
        if instr.fields["body"]:
            ends.append(end)
        if len(ends) > machine.command_processor.loop_depth:
            place.fail("bad-loop", f"loops nest {len(ends)} deep, the machine {machine.command_processor.loop_depth}")


def _check_signals(program: Program, machine: Machine) -> None:
    limit = machine.command_processor.signals
    producer: dict[int, int] = {}
    for place in _places(program):
        if place.instr.name not in ("SIGNAL", "WAIT"):
            continue
        signal = place.instr.fields["signal"]
        if signal >= limit:
            place.fail("bad-signal", f"signal {signal} does not exist; the machine has {limit}")
        if place.instr.name == "SIGNAL" and producer.setdefault(signal, place.stream) != place.stream:
            place.fail("bad-signal", f"signal {signal} is produced by stream {producer[signal]} too")
    for place in _places(program):
        if place.instr.name == "WAIT" and place.instr.fields["signal"] not in producer:
            place.fail("bad-signal", f"no stream produces signal {place.instr.fields['signal']}: the wait never ends")
