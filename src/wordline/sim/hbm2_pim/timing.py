"""Cycles of channel streams on pseudo-channels (rules: docs/hbm2-pim.md, "Cycles").

Event-driven: each command issues at the earliest cycle that all its constraints allow, a burst advances in closed form
up to the next due refresh, and channels with the same stream are timed once unless the stream reads its channel number.
Timing never depends on tensor values. Streams that wait for signals are not timed yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from wordline.isa.program import Program, Stream
from wordline.isa.verify import verify_program
from wordline.machines import Machine
from wordline.machines.hbm2_pim import Pim
from wordline.sim.fault import Fault
from wordline.sim.hbm2_pim.commands import ALL_BANK, CAUSES, PIM, IssuedCommand, PseudoChannelModel
from wordline.sim.processor import Operands


@dataclass(frozen=True)
class PseudoChannelTime:
    """One pseudo-channel of a run, in cycles. ``causes`` sum to ``end``."""

    end: int
    """Cycle after the last effect of the stream."""
    refresh_charge: int
    """nRFC for each interval of refresh debt that the run leaves; negative for refresh that it prepaid."""
    refreshes: int
    causes: Mapping[str, int]
    commands: Mapping[str, int]
    trace: tuple[IssuedCommand, ...]

    @property
    def cycles(self) -> int:
        """``end`` with the refresh charge."""
        return self.end + self.refresh_charge


@dataclass(frozen=True)
class ProgramTime:
    """All pseudo-channels of a run, by channel."""

    channels: Mapping[int, PseudoChannelTime]
    tck_ns: float

    @property
    def cycles(self) -> int:
        """Of the slowest pseudo-channel."""
        return max((channel.cycles for channel in self.channels.values()), default=0)

    @property
    def nanoseconds(self) -> float:
        """Device time."""
        return self.cycles * self.tck_ns

    @property
    def causes(self) -> dict[str, float]:
        """Mean over pseudo-channels of each cause, the refresh charge with refresh; they sum to ``cycles``."""
        total = dict.fromkeys((*CAUSES, "tail"), 0.0)
        for channel in self.channels.values():
            for cause, cycles in channel.causes.items():
                total[cause] += cycles / len(self.channels)
            total["refresh"] += channel.refresh_charge / len(self.channels)
            total["tail"] += (self.cycles - channel.cycles) / len(self.channels)
        return total


def time_program(
    machine: Machine,
    program: Program,
    memory: Sequence[int] | npt.NDArray[np.int32] = (),
    *,
    argument_base: int = 0,
    refresh_phase: int = 0,
    trace: bool = False,
) -> ProgramTime:
    """Time one submission of a program of channel streams.

    Args:
        machine: of this generation.
        program: verified first.
        memory: int32 words of the controller's memory from word 0 up; the rest is zero.
        argument_base: word address of the argument block.
        refresh_phase: cycles of the first refresh interval that have passed when the submission starts.
        trace: keep every DRAM command.

    Raises:
        Fault: with stream, channel and instruction.
        WordlineError: as :func:`wordline.isa.verify.verify_program`; "unsupported-generation" for other streams and
            for streams that wait.
    """
    verify_program(program, machine)
    words = np.zeros(machine.command_processor.controller_memory_bytes // 4, np.int32)
    words[: len(memory)] = memory
    channels: dict[int, PseudoChannelTime] = {}
    for index, stream in enumerate(program.streams):
        if stream.engine is not Engine.CHANNEL or any(instr.name == "WAIT" for instr in stream.instrs):
            raise machine.unsupported("timing of vector and link streams, and of streams that wait")
        operands = [Operands(instr) for instr in stream.instrs]
        members = [c for c in range(stream.channel_mask.bit_length()) if stream.channel_mask >> c & 1]
        alike = members if _reads_channel(stream) else members[:1]
        for channel in alike:
            run = _Run(machine, index, stream, operands, channel, words.copy(), argument_base, refresh_phase, trace)
            channels[channel] = run.time()
        for channel in members[len(alike) :]:
            channels[channel] = channels[members[0]]
    return ProgramTime(dict(sorted(channels.items())), machine.clock.tck_ns)


def _reads_channel(stream: Stream) -> bool:
    """Whether the stream reads the register with the channel's number, or words that it may have stored by it."""
    return any(
        register == CHANNEL_REGISTER
        for instr in stream.instrs
        for word in instr.words.values()
        if not isinstance(word, dict)
        for register, _ in word.terms
    )


class _Run:
    """One stream on one pseudo-channel."""

    def __init__(
        self,
        machine: Machine,
        index: int,
        stream: Stream,
        operands: list[Operands],
        channel: int,
        memory: npt.NDArray[np.int32],
        argument_base: int,
        refresh_phase: int,
        trace: bool,
    ) -> None:
        self._index, self._stream, self._operands, self._channel = index, stream, operands, channel
        self._memory = memory
        self._bounds = Bounds.of(machine)
        self._reserved = machine.section("pim", Pim).reserved_row
        self._model = PseudoChannelModel(machine, refresh_phase, trace)
        self._position = 0
        # What the semantics of scalar instructions use.
        self.argument_base = argument_base
        self.registers = [0] * REGISTERS
        self.registers[CHANNEL_REGISTER] = channel
        self.shared = [0] * machine.command_processor.shared_registers

    def load_word(self, address: int) -> int:
        check_range("controller memory word", address, 1, self._bounds.controller_words)
        return int(self._memory[address])

    def store_word(self, address: int, value: int) -> None:
        check_range("controller memory word", address, 1, self._bounds.controller_words)
        self._memory[address] = value

    def time(self) -> PseudoChannelTime:
        self._block(0, len(self._stream.instrs))
        model = self._model
        end = model.finish()
        return PseudoChannelTime(
            end,
            model.refresh_charge(end),
            model.refreshes,
            dict(model.causes),
            dict(sorted(model.commands.items())),
            tuple(model.trace),
        )

    def _block(self, first: int, end: int) -> None:
        self._position = first
        while self._position < end:
            at = self._position
            operands = self._operands[at]
            try:
                values = operands.evaluate(self.registers)
                if operands.declaration.name == "LOOP":
                    self._model.slot()
                    for trip in range(values.count):
                        self.registers[values.rd] = trip
                        self._block(at + 1, at + 1 + values.body)
                    self._position = at + 1 + values.body
                    continue
                self._bounds.check(operands.declaration, vars(values))
                self._instruction(self._stream.instrs[at], values)
            except OperandError as error:
                head = format_head(self._stream.instrs[at])
                raise Fault(self._index, self._channel, at, str(error), head) from None
            self._position = at + 1

    def _instruction(self, instr: Instr, o: Any) -> None:
        model, count = self._model, getattr(o, "count", 1)
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
                if instr.declaration.semantics is not None:
                    instr.declaration.semantics(self, o)
                model.slot()

    def _register(self, name: str, parity: int, column: int, count: int) -> None:
        self._need(name, ALL_BANK, PIM)
        self._model.columns("WR", parity, self._reserved, column, count, "fill")

    def _need(self, name: str, *modes: str) -> None:
        if self._model.mode not in modes:
            raise OperandError(
                f"{name} needs {' or '.join(modes)} mode, the pseudo-channel is in {self._model.mode} mode"
            )
