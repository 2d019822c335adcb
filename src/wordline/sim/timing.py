"""Cycles of device programs: the typed face of the native cycle model (rules: ``docs/timing.md``).

Timing never depends on tensor values, so a program is timed without weights: only the words of the controller's memory
(arguments, page tables) matter. Shared registers, which hold results of vector reductions, read as 0.
All times are cycles of ``machine.clock.tck_ns`` of device time; nothing measured on the host is mixed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from wordline import _native
from wordline.isa.declare import Engine
from wordline.isa.program import Program
from wordline.machines import Machine
from wordline.sim.critical_path import CriticalPath
from wordline.sim.issued_commands import IssuedCommands

CAUSES: tuple[str, ...] = tuple(_native.CAUSES)
"""What a cycle of a channel is spent on, in the order of every array of causes (meanings: ``docs/timing.md``)."""

DRAM_COMMANDS: tuple[str, ...] = tuple(_native.DRAM_COMMANDS)
"""Names of the commands that a channel issues."""


@dataclass(frozen=True)
class ChannelTime:
    """One channel of a run, in cycles. The ``causes`` sum to the cycles of the whole run."""

    end: int
    """Cycle after the last effect of the channel's stream."""
    refresh_charge: int
    """nRFC for each interval of refresh debt that the run leaves; negative for refresh that it prepaid."""
    refreshes: int
    open_cycles: int
    """Cycles of the run with a row open in some bank."""
    causes: Mapping[str, int]
    commands: Mapping[str, int]


class StreamTime:
    """One stream of a run, by index of instruction, in cycles. Each table is made when it is first asked for."""

    def __init__(self, native: _native.StreamTiming) -> None:
        self._native = native
        self.engine = Engine(native.engine)
        self.end = int(native.end)

    @cached_property
    def causes(self) -> npt.NDArray[np.int64]:
        """[instructions, causes], summed over the stream's channels (without tail and refresh charge); else empty."""
        return np.asarray(self._native.causes)

    @cached_property
    def busy(self) -> npt.NDArray[np.int64]:
        """[instructions] cycles of the vector unit or the link; empty for channel streams."""
        return np.asarray(self._native.busy, dtype=np.int64)

    @cached_property
    def bytes(self) -> npt.NDArray[np.int64]:
        """[instructions] bytes over the link; empty for other streams."""
        return np.asarray(self._native.bytes, dtype=np.int64)

    @cached_property
    def commands(self) -> npt.NDArray[np.int64]:
        """[instructions, commands], summed over the stream's channels; empty unless they were asked for."""
        return np.asarray(self._native.commands)


@dataclass(frozen=True)
class Span:
    """A range of instructions ``first..last`` (inclusive) of one stream that belongs to ``label``."""

    stream: int
    first: int
    last: int
    label: str


@dataclass(frozen=True)
class SpanTime:
    """Cycles of everything with one label: each cause as mean over the channels, and what vector unit and link took.

    ``commands`` (all channels together) are zero unless the run counted them by instruction.
    """

    label: str
    causes: Mapping[str, float]
    vector_busy: int
    link_busy: int
    link_bytes: int
    commands: Mapping[str, int]

    @property
    def cycles(self) -> float:
        """Cycles of a channel, mean over channels: all causes together."""
        return sum(self.causes.values())


@dataclass(frozen=True)
class TimingResult:
    """Cycles of one submission."""

    cycles: int
    tck_ns: float
    channels: tuple[ChannelTime, ...]
    streams: tuple[StreamTime, ...]
    trace: IssuedCommands
    """Empty unless it was asked for."""
    simulated_channels: int
    """How many channels were simulated; the others have streams that cannot differ from them."""
    shared_segments: int
    """How often a channel took over what lies between two waits from another channel, layer or submission."""
    critical_path: CriticalPath | None = None
    """If it was asked for; instructions are indices in the stream of the part's lane."""

    @property
    def nanoseconds(self) -> float:
        """Device time of the submission."""
        return self.cycles * self.tck_ns

    @property
    def causes(self) -> dict[str, float]:
        """Mean over channels of each cause; they sum to ``cycles``."""
        return {cause: sum(c.causes[cause] for c in self.channels) / len(self.channels) for cause in CAUSES}

    def split(self, spans: Iterable[Span]) -> list[SpanTime]:
        """Cycles by label, in order of first appearance; instructions outside all spans are left out."""
        causes: dict[str, npt.NDArray[np.int64]] = {}
        commands: dict[str, npt.NDArray[np.int64]] = {}
        carried: dict[str, int] = {}
        busy: dict[str, dict[Engine, int]] = {}
        for span in spans:
            stream = self.streams[span.stream]
            total = causes.setdefault(span.label, np.zeros(len(CAUSES), np.int64))
            issued = commands.setdefault(span.label, np.zeros(len(DRAM_COMMANDS), np.int64))
            serial = busy.setdefault(span.label, {Engine.VECTOR: 0, Engine.LINK: 0})
            carried[span.label] = carried.get(span.label, 0) + int(stream.bytes[span.first : span.last + 1].sum())
            if stream.engine is Engine.CHANNEL:
                total += stream.causes[span.first : span.last + 1].sum(axis=0)
                if stream.commands.size:
                    issued += stream.commands[span.first : span.last + 1].sum(axis=0)
            else:
                serial[stream.engine] += int(stream.busy[span.first : span.last + 1].sum())
        channels = len(self.channels)
        return [
            SpanTime(
                label,
                {cause: int(cycles) / channels for cause, cycles in zip(CAUSES, total, strict=True)},
                busy[label][Engine.VECTOR],
                busy[label][Engine.LINK],
                carried[label],
                _named(DRAM_COMMANDS, commands[label]),
            )
            for label, total in causes.items()
        ]


class TimingModel:
    """The cycle model of one machine. Raises ``WordlineError("bad-machine")`` for one that it does not implement."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._native = _native.TimingModel(machine.native())

    def load(self, program: Program | bytes) -> int:
        """Load a program (or its image); returns its slot. Raises ``WordlineError("bad-program")``."""
        return int(self._native.load_program(program.to_bytes() if isinstance(program, Program) else program))

    def unload(self, slot: int) -> None:
        """Forget a program. Raises ``WordlineError("bad-slot")``."""
        self._native.unload_program(slot)

    def run(
        self,
        slot: int,
        argument_base: int = 0,
        memory: Sequence[int] | npt.NDArray[np.int32] = (),
        *,
        trace: bool = False,
        step_bursts: bool = False,
        share_channels: bool = True,
        instruction_commands: bool = False,
        explain: bool = False,
    ) -> TimingResult:
        """Time one submission.

        Args:
            slot: From :meth:`load`.
            argument_base: Word address of the argument block.
            memory: int32 words of the controller's memory from word 0 up; the rest is zero. Not written.
            trace: Record every DRAM command (all channels are then simulated).
            step_bursts: Issue each column by itself: slower, with the same result.
            share_channels: Simulate once what channels, layers and submissions of the same slot do alike: the whole
                stream for all channels when it does not read its channel number; what lies between two waits.
            instruction_commands: Count the DRAM commands of each instruction.
            explain: Find the critical path: slower, with the same result.

        Raises:
            Fault: With stream, channel and instruction.
            WordlineError: "bad-slot".
        """
        words = np.ascontiguousarray(memory, dtype=np.int32)
        result = self._native.run(
            slot,
            argument_base,
            words,
            trace=trace,
            step_bursts=step_bursts,
            share_channels=share_channels,
            instruction_commands=instruction_commands,
            explain=explain,
        )
        return convert_result(result, self.machine.clock.tck_ns)


def convert_result(result: _native.TimingResult, tck_ns: float) -> TimingResult:
    """A native result as plain Python data."""
    channels = tuple(
        ChannelTime(end, charge, refreshes, rows_open, _named(CAUSES, causes), _named(DRAM_COMMANDS, commands))
        for end, charge, refreshes, rows_open, causes, commands in zip(
            result.ends,
            result.refresh_charges,
            result.refreshes,
            result.open_cycles,
            result.causes,
            result.commands,
            strict=True,
        )
    )
    streams = tuple(StreamTime(stream) for stream in result.streams)
    recorded = result.explanation
    return TimingResult(
        result.cycles,
        tck_ns,
        channels,
        streams,
        IssuedCommands(np.asarray(result.trace), DRAM_COMMANDS),
        result.simulated_channels,
        result.shared_segments,
        None if recorded is None else CriticalPath.of(recorded, result.cycles, DRAM_COMMANDS),
    )


def time_program(
    machine: Machine,
    program: Program | bytes,
    memory: Sequence[int] | npt.NDArray[np.int32] = (),
    *,
    argument_base: int = 0,
    trace: bool = False,
    explain: bool = False,
) -> TimingResult:
    """Time one submission of ``program``, see :meth:`TimingModel.run`."""
    model = TimingModel(machine)
    return model.run(model.load(program), argument_base, memory, trace=trace, explain=explain)


def _named(names: Sequence[str], values: Iterable[int]) -> dict[str, int]:
    return {name: int(value) for name, value in zip(names, values, strict=True)}
