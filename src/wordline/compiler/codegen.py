"""From tasks to a device program.

Register numbers, scratch offsets, instruction words, and which instructions serve which operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from wordline.compiler.arguments import FLAGS
from wordline.compiler.kernel.builder import CHANNEL
from wordline.compiler.kernel.ir import Address, Command, Item, Loop, Task, command
from wordline.compiler.kernel.passes import PassLoop, PassSpec
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.compiler.kernel.symbols import Linear, Register, SharedRegister, linear
from wordline.compiler.memory import ScratchPlan
from wordline.compiler.synchronise import Synchronisation
from wordline.compiler.vector.emit import pass_instruction
from wordline.errors import WordlineError
from wordline.isa.controller.control import CHANNEL_REGISTER, FIRST_WRITABLE_REGISTER
from wordline.isa.declare import Engine, InstructionSet
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream
from wordline.isa.provenance import Range
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class GeneratedProgram:
    """The device program, and where its instructions come from; ``tasks`` has the name of each range's task."""

    program: Program
    provenance: tuple[Range, ...]
    tasks: tuple[str, ...]


def generate(
    machine: Machine, isa: InstructionSet, tasks: Sequence[Task], plan: ScratchPlan, sync: Synchronisation
) -> GeneratedProgram:
    """Encode the tasks. Raises ``WordlineError("registers")`` when a task needs more registers than a stream has."""
    offsets = plan.offsets()
    shared = allocate_shared(machine, tasks)
    engines = [engine for engine in Engine if any(task.engine is engine for task in tasks)]
    instrs: dict[Engine, list[Instr]] = {engine: [] for engine in engines}
    ranges: list[Range] = []
    names: list[str] = []
    for index, task in enumerate(tasks):
        items = _with_synchronisation(task, sync, index)
        registers = allocate_registers(items, machine.command_processor.registers, task)
        encoder = _Encoder(isa, offsets, registers, shared)
        stream = instrs[task.engine]
        first = len(stream)
        stream.extend(encoder.items(items))
        if len(stream) > first:
            place = engines.index(task.engine)
            ranges.append(Range(place, first, len(stream) - 1, task.op, task.kind, task.loc))
            names.append(task.name)
    channels = (1 << machine.organisation.channels) - 1
    streams = tuple(Stream(e, channels if e is Engine.CHANNEL else 0, tuple(instrs[e])) for e in engines)
    return GeneratedProgram(Program(isa, streams), tuple(ranges), tuple(names))


def _with_synchronisation(task: Task, sync: Synchronisation, index: int) -> tuple[Item, ...]:
    """Prologue, waits, body, signal; a predicated task runs prologue and body only when its flag is set."""
    waits = tuple(command("WAIT", None, {"signal": wait.engine.value}, value=wait.count) for wait in sync.waits[index])
    signal = (command("SIGNAL", None, {"signal": task.engine.value}),) if sync.signals[index] else ()
    if task.predicate is None:
        return (*task.prologue, *waits, *task.body, *signal)
    flags, bit, on = Register("flags"), Register("flag_bit"), Register("flag")
    test = (
        command("LDA", flags, None, index=FLAGS),
        command("SHR", bit, None, a=flags, b=task.predicate),
        command("AND", on, None, a=bit, b=1),
    )
    early = (Loop(Register("early_run"), linear(on), task.prologue),) if task.prologue else ()
    return (*test, *early, *waits, Loop(Register("run"), linear(on), task.body), *signal)


def _uses(item: Item) -> Iterable[Register]:
    if isinstance(item, (Loop, PassLoop)):
        yield from item.count.registers
    elif isinstance(item, PassSpec):
        yield from item.registers
    else:
        for _, operand in item.operands:
            if isinstance(operand, Linear):
                yield from operand.registers
            elif isinstance(operand, Address):
                yield from operand.offset.registers


def allocate_registers(items: Sequence[Item], registers: int, task: Task) -> Callable[[Register], int]:
    """Linear scan over the items; a register used inside a loop but set outside it lives until the loop ends."""
    start: dict[Register, int] = {}
    end: dict[Register, int] = {}
    position = 0

    def visit(body: Sequence[Item], loops: tuple[tuple[int, list[Register]], ...]) -> None:
        nonlocal position
        for item in body:
            position += 1
            for register in _uses(item):
                if register == CHANNEL:
                    continue
                if register not in start:
                    raise WordlineError(
                        "registers", f"task {task.name} reads register {register} before it is set", where=task.op
                    )
                end[register] = position
                for opened, used in loops:
                    if start[register] < opened:
                        used.append(register)
            if isinstance(item, Command) and item.target is not None:
                start.setdefault(item.target, position)
                end[item.target] = max(end.get(item.target, 0), position)
            elif isinstance(item, (Loop, PassLoop)):
                outer: list[Register] = []
                start.setdefault(item.register, position)
                visit(item.body, (*loops, (position, outer)))
                position += 1
                end[item.register] = max(end.get(item.register, 0), position)
                for register in outer:
                    end[register] = max(end[register], position)

    visit(items, ())
    numbers: dict[Register, int] = {CHANNEL: CHANNEL_REGISTER}
    free = list(range(registers - 1, FIRST_WRITABLE_REGISTER - 1, -1))
    active: list[Register] = []
    for register in sorted(start, key=lambda r: start[r]):
        for old in [a for a in active if end[a] < start[register]]:
            active.remove(old)
            free.append(numbers[old])
        if not free:
            raise WordlineError(
                "registers",
                f"task {task.name} needs more than the {registers - FIRST_WRITABLE_REGISTER} registers of a stream",
                where=task.op,
            )
        numbers[register] = free.pop()
        active.append(register)
    return numbers.__getitem__


def allocate_shared(machine: Machine, tasks: Sequence[Task]) -> dict[SharedRegister, int]:
    """Numbers of shared registers, reused once the last task that reads one has passed."""
    first: dict[SharedRegister, int] = {}
    last: dict[SharedRegister, int] = {}
    for index, task in enumerate(tasks):
        for register in _shared(task.body):
            first.setdefault(register, index)
            last[register] = index
    numbers: dict[SharedRegister, int] = {}
    limit = machine.command_processor.shared_registers
    free = list(range(limit - 1, -1, -1))
    active: list[SharedRegister] = []
    for register in sorted(first, key=lambda r: first[r]):
        for old in [a for a in active if last[a] < first[register]]:
            active.remove(old)
            free.append(numbers[old])
        if not free:
            raise WordlineError(
                "registers", f"more than {limit} shared registers are live at once", where=tasks[first[register]].op
            )
        numbers[register] = free.pop()
        active.append(register)
    return numbers


def _shared(items: Sequence[Item]) -> Iterable[SharedRegister]:
    for item in items:
        if isinstance(item, PassSpec):
            yield from item.shared_read
            yield from item.shared_written
        elif isinstance(item, Command):
            yield from (operand for _, operand in item.operands if isinstance(operand, SharedRegister))
        else:
            yield from _shared(item.body)


class _Encoder:
    """Items to instructions, with the offsets and numbers that planning chose."""

    def __init__(
        self,
        isa: InstructionSet,
        offsets: dict[ScratchBuffer, int],
        registers: Callable[[Register], int],
        shared: dict[SharedRegister, int],
    ) -> None:
        self._isa, self._offsets, self._registers, self._shared = isa, offsets, registers, shared

    def items(self, items: Sequence[Item]) -> list[Instr]:
        out: list[Instr] = []
        for item in items:
            if isinstance(item, Command):
                out.append(self._command(item))
            elif isinstance(item, PassSpec):
                out.append(
                    pass_instruction(
                        self._isa, item, self._offsets.__getitem__, self._registers, self._shared.__getitem__
                    )
                )
            else:
                body = self.items(item.body)
                count = item.count.resolve(self._registers)
                out.append(make(self._isa, "LOOP", rd=self._registers(item.register), body=len(body), count=count))
                out.extend(body)
        return out

    def _command(self, item: Command) -> Instr:
        values: dict[str, object] = dict(item.fields)
        for name, operand in item.operands:
            if isinstance(operand, SharedRegister):
                values[name] = self._shared[operand]
            elif isinstance(operand, Address):
                values[name] = (operand.offset + self._offsets[operand.buffer]).resolve(self._registers)
            else:
                values[name] = operand.resolve(self._registers)
        if item.target is not None:
            values["rd"] = self._registers(item.target)
        return make(self._isa, item.name, **values)
