"""Streams in time: what each instruction of a channel stream, or of the host's vector stream, asks for and when."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.isa.bounds import Bounds, check_range
from wordline.isa.controller.control import CHANNEL_REGISTER, REGISTERS
from wordline.isa.declare import Engine, OperandError
from wordline.isa.disassemble import format_head
from wordline.isa.hbm2_pim.bank import CRF_COLUMN, CRF_COLUMN_ENTRIES, GRF_COLUMN, MODES, SRF_COLUMN
from wordline.isa.hbm2_pim.crf import REGISTERS as GRF_REGISTERS
from wordline.isa.instruction import Instr
from wordline.isa.program import Stream
from wordline.machines import Machine
from wordline.machines.hbm2_pim import Host, Pim
from wordline.sim.fault import Fault
from wordline.sim.hbm2_pim.commands import ALL_BANK, PIM, PseudoChannelModel
from wordline.sim.processor import Operands


class Signals:
    """When each signal was raised, by the channels of its stream. ``raised`` counts all, to see progress."""

    def __init__(self) -> None:
        self.raised = 0
        self._engines: dict[int, Engine] = {}
        self._effects: dict[int, dict[int, list[int]]] = {}

    def declare(self, stream: Stream, members: tuple[int, ...]) -> None:
        """A stream that produces signals, on these channels."""
        for instr in stream.instrs:
            if instr.name == "SIGNAL":
                signal = instr.fields["signal"]
                self._engines[signal] = stream.engine
                self._effects[signal] = {member: [] for member in members}

    def add(self, signal: int, members: tuple[int, ...], cycle: int) -> None:
        """One more, in effect from ``cycle``."""
        self.raised += 1
        for member in members:
            self._effects[signal][member].append(cycle)

    def effect(self, signal: int, count: int) -> int | None:
        """The cycle of the count-th effect on the slowest channel; None while that is not known."""
        effects = self._effects[signal].values()
        if any(len(times) < count for times in effects):
            return None
        return max(times[count - 1] for times in effects)

    def engine(self, signal: int) -> Engine:
        """Whose stream raises it."""
        return self._engines[signal]


class StreamRun:
    """One stream on channels that do the same; ``clock`` is the first cycle in which the next instruction may issue.

    It is also the state that the semantics of scalar instructions see; reductions of values read as 0.
    """

    def __init__(
        self,
        machine: Machine,
        index: int,
        stream: Stream,
        members: tuple[int, ...],
        memory: npt.NDArray[np.int32],
        argument_base: int,
        signals: Signals,
    ) -> None:
        self._index, self._stream, self._members, self._signals = index, stream, members, signals
        self._operands = [Operands(instr) for instr in stream.instrs]
        self._memory = memory
        self._bounds = Bounds.of(machine)
        self._position = 0
        self.argument_base = argument_base
        self.registers = [0] * REGISTERS
        if stream.engine is Engine.CHANNEL:
            self.registers[CHANNEL_REGISTER] = members[0]
        self.shared = [0] * machine.command_processor.shared_registers

    def load_word(self, address: int) -> int:
        """A word of controller memory."""
        check_range("controller memory word", address, 1, self._bounds.controller_words)
        return int(self._memory[address])

    def store_word(self, address: int, value: int) -> None:
        """Set a word of controller memory, for this stream."""
        check_range("controller memory word", address, 1, self._bounds.controller_words)
        self._memory[address] = value

    def fault(self, reason: str) -> Fault:
        """A fault at the current instruction."""
        text = format_head(self._stream.instrs[self._position])
        return Fault(self._index, self._members[0], self._position, reason, text)

    def execute(self) -> Iterator[None]:
        """To the end; yields where a signal is not known yet."""
        return self._block(0, len(self._stream.instrs))

    def _block(self, first: int, end: int) -> Iterator[None]:
        at = first
        while at < end:
            self._position = at
            operands = self._operands[at]
            try:
                values = operands.evaluate(self.registers)
                self._bounds.check(operands.declaration, vars(values))
            except OperandError as error:
                raise self.fault(str(error)) from None
            match operands.declaration.name:
                case "LOOP":
                    self.slot()
                    for trip in range(values.count):
                        self.registers[values.rd] = trip
                        yield from self._block(at + 1, at + 1 + values.body)
                    at += values.body
                case "WAIT":
                    if values.value > 0:
                        while (effect := self._signals.effect(values.signal, values.value)) is None:
                            yield
                        self.wait(effect + 1, self._signals.engine(values.signal))
                    self.slot()
                case "SIGNAL":
                    self._signals.add(values.signal, self._members, self.settled())
                    self.slot()
                case _:
                    self._execute(self._stream.instrs[at], values)
            at += 1

    def _execute(self, instr: Instr, o: Any) -> None:
        try:
            self.instruction(instr, o)
        except OperandError as error:
            raise self.fault(str(error)) from None

    def scalar(self, instr: Instr, o: Any) -> None:
        """An instruction of every stream."""
        if instr.declaration.semantics is not None:
            instr.declaration.semantics(self, o)
        self.slot()

    def slot(self) -> None:
        """The cycle of an instruction that does nothing else."""
        raise NotImplementedError

    def wait(self, cycle: int, engine: Engine) -> None:
        """Nothing before ``cycle``."""
        raise NotImplementedError

    def settled(self) -> int:
        """When all that went before has taken effect."""
        raise NotImplementedError

    def instruction(self, instr: Instr, o: Any) -> None:
        """Everything but loops, waits and signals. Raises ``OperandError``."""
        raise NotImplementedError


class ChannelRun(StreamRun):
    """A channel stream on a pseudo-channel."""

    def __init__(
        self,
        machine: Machine,
        index: int,
        stream: Stream,
        members: tuple[int, ...],
        memory: npt.NDArray[np.int32],
        argument_base: int,
        signals: Signals,
        refresh_phase: int,
        trace: bool,
    ) -> None:
        super().__init__(machine, index, stream, members, memory, argument_base, signals)
        self._reserved = machine.section("pim", Pim).reserved_row
        self._landing = machine.scratch.landing_cycles
        self.model = PseudoChannelModel(machine, refresh_phase, trace)

    def slot(self) -> None:
        self.model.slot()

    def wait(self, cycle: int, engine: Engine) -> None:
        self.model.wait(cycle, "vector" if engine is Engine.VECTOR else "wait")

    def settled(self) -> int:
        model = self.model
        return max(model.clock, model.read_landed + self._landing if model.read_landed else 0)

    def instruction(self, instr: Instr, o: Any) -> None:
        model, count = self.model, getattr(o, "count", 1)
        if count <= 0:
            model.slot()
            return
        match instr.name:
            case "RD" | "WR":
                model.columns(instr.name, o.bank, o.row, o.column, count, "column_access")
            case "PIMRD":
                self._need(instr.name, PIM)
                model.columns("RD", o.parity, o.row, o.column, count, "mac")
            case "PIMWR":
                self._need(instr.name, PIM)
                model.columns("WR", o.parity, o.row, o.column, count, "column_access")
            case "WRCRF":
                self._register(instr.name, o.parity, CRF_COLUMN + o.column, -(-len(o.program) // CRF_COLUMN_ENTRIES))
            case "WRSRF":
                self._register(instr.name, o.parity, SRF_COLUMN, 1)
            case "WRGRF":
                self._register(instr.name, o.parity, GRF_COLUMN + o.file * GRF_REGISTERS + o.first, count)
            case "MODE":
                model.set_mode(MODES[o.mode], o.parity)
            case "ACT":
                model.activate(o.bank, o.row)
            case "PRE":
                model.precharge(o.bank)
            case "PREA":
                model.precharge(None)
            case "REF":
                model.refresh(late=bool(o.when))
            case _:
                self.scalar(instr, o)

    def _register(self, name: str, parity: int, column: int, count: int) -> None:
        self._need(name, ALL_BANK, PIM)
        self.model.columns("WR", parity, self._reserved, column, count, "fill")

    def _need(self, name: str, *modes: str) -> None:
        if self.model.mode not in modes:
            found = self.model.mode
            raise OperandError(f"{name} needs {' or '.join(modes)} mode, the pseudo-channel is in {found} mode")


class HostSideRun(StreamRun):
    """A stream on the host, whose own instructions take no device time.

    As it is, the link stream: scratch is the host's memory, so its transfers are copies within that memory.
    """

    clock = 0

    def slot(self) -> None:
        pass

    def wait(self, cycle: int, engine: Engine) -> None:
        self.clock = max(self.clock, cycle)

    def settled(self) -> int:
        return self.clock

    def instruction(self, instr: Instr, o: Any) -> None:
        if instr.declaration.timing == "scalar":
            self.scalar(instr, o)


class HostRun(HostSideRun):
    """The vector stream on the host: passes between two waits are one host-call (decision 0007).

    A call takes one round trip, and the arithmetic of its passes at the host's declared rate.
    """

    def __init__(
        self,
        machine: Machine,
        index: int,
        stream: Stream,
        members: tuple[int, ...],
        memory: npt.NDArray[np.int32],
        argument_base: int,
        signals: Signals,
    ) -> None:
        super().__init__(machine, index, stream, members, memory, argument_base, signals)
        host, tck = machine.section("host", Host), machine.clock.tck_ns
        self._round_trip = ceil(host.call_latency_ns / tck)
        self._operations_a_cycle = host.gflop_per_s * tck
        self._in_call = False
        self.calls = 0
        self.busy = 0

    def wait(self, cycle: int, engine: Engine) -> None:
        # What the host knows already does not end a call.
        if cycle > self.clock:
            self.clock = cycle
            self._in_call = False

    def instruction(self, instr: Instr, o: Any) -> None:
        if instr.name != "VPASS":
            super().instruction(instr, o)
            return
        cycles = 0
        if not self._in_call:
            self._in_call = True
            self.calls += 1
            cycles = self._round_trip
        elements = max(o.n0, 0) * max(o.n1, 0) * max(o.n2, 0)
        operations = elements * max(1, len(o.operations) + len(o.reductions))
        cycles += ceil(operations / self._operations_a_cycle)
        self.clock += cycles
        self.busy += cycles
