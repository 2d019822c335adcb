"""Cycles of device programs on pseudo-channels (rules: docs/hbm2-pim.md, "Cycles").

Event-driven: each command issues at the earliest cycle that all its constraints allow, a burst advances in closed form
up to the next due refresh, and channels with the same stream are timed once unless the stream reads its channel number.
Streams meet at signals; the host runs the vector and the link stream. Timing never depends on tensor values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wordline.isa.controller.control import CHANNEL_REGISTER
from wordline.isa.declare import Engine
from wordline.isa.program import Program, Stream
from wordline.isa.verify import verify_program
from wordline.machines import Machine
from wordline.sim.hbm2_pim.commands import CAUSES, IssuedCommand
from wordline.sim.hbm2_pim.streams import ChannelRun, HostRun, HostSideRun, Signals, StreamRun


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
    """All pseudo-channels of a run, by channel, and the host."""

    channels: Mapping[int, PseudoChannelTime]
    tck_ns: float
    host_calls: int = 0
    host_cycles: int = 0
    """What the host-calls took, in cycles of the device's clock."""
    host_end: int = 0

    @property
    def cycles(self) -> int:
        """Of the slowest pseudo-channel or the host, whichever ends last."""
        return max(self.host_end, *(channel.cycles for channel in self.channels.values()), 0)

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
    """Time one submission of a program.

    Args:
        machine: of this generation.
        program: verified first.
        memory: int32 words of the controller's memory from word 0 up; the rest is zero. A stream sees its own stores.
        argument_base: word address of the argument block.
        refresh_phase: cycles of the first refresh interval that have passed when the submission starts.
        trace: keep every DRAM command.

    Raises:
        Fault: with stream, channel and instruction.
        WordlineError: as :func:`wordline.isa.verify.verify_program`.
    """
    verify_program(program, machine)
    words = np.zeros(machine.command_processor.controller_memory_bytes // 4, np.int32)
    words[: len(memory)] = memory
    signals = Signals()
    runs: list[tuple[StreamRun, tuple[int, ...]]] = []
    for index, stream in enumerate(program.streams):
        members = tuple(c for c in range(stream.channel_mask.bit_length()) if stream.channel_mask >> c & 1) or (0,)
        signals.declare(stream, members)
        groups = [(channel,) for channel in members] if _reads_channel(stream) else [members]
        for group in groups:
            if stream.engine is not Engine.CHANNEL:
                kind = HostRun if stream.engine is Engine.VECTOR else HostSideRun
                runs.append((kind(machine, index, stream, group, words.copy(), argument_base, signals), group))
            else:
                channel_run = ChannelRun(
                    machine, index, stream, group, words.copy(), argument_base, signals, refresh_phase, trace
                )
                runs.append((channel_run, group))
    _run_all([run for run, _ in runs], signals)
    channels: dict[int, PseudoChannelTime] = {}
    calls = cycles = end = 0
    for run, group in runs:
        if isinstance(run, HostSideRun):
            end = max(end, run.clock)
        if isinstance(run, HostRun):
            calls, cycles = run.calls, run.busy
        elif isinstance(run, ChannelRun):
            channels.update(dict.fromkeys(group, _channel_time(run)))
    return ProgramTime(dict(sorted(channels.items())), machine.clock.tck_ns, calls, cycles, end)


def _channel_time(run: ChannelRun) -> PseudoChannelTime:
    model = run.model
    end = model.finish()
    commands = dict(sorted(model.commands.items()))
    charge = model.refresh_charge(end)
    return PseudoChannelTime(end, charge, model.refreshes, dict(model.causes), commands, tuple(model.trace))


def _run_all(runs: Sequence[StreamRun], signals: Signals) -> None:
    """Each stream as far as its signals allow, again and again. Raises the fault "deadlock" if none can go on."""
    unfinished = [(run, run.execute()) for run in runs]
    while unfinished:
        before = signals.raised
        blocked = [(run, steps) for run, steps in unfinished if _blocks(steps)]
        if len(blocked) == len(unfinished) and signals.raised == before:
            raise blocked[0][0].fault("deadlock: every stream that has not ended waits for a signal")
        unfinished = blocked


def _blocks(steps: Iterator[None]) -> bool:
    """Go on with a stream; whether it then waits for a signal, and has not ended."""
    for _ in steps:
        return True
    return False


def _reads_channel(stream: Stream) -> bool:
    """Whether the stream reads the register with the channel's number, or words that it may have stored by it."""
    return any(
        register == CHANNEL_REGISTER
        for instr in stream.instrs
        for word in instr.words.values()
        if not isinstance(word, dict)
        for register, _ in word.terms
    )
