"""The reference device: executes whole programs by the NumPy meaning of each instruction. It defines what is right.

All streams run concurrently and meet at signals only. Any interleaving is legal, and a race-free program gives the same
bits in all of them: ``execute(..., seed=n)`` draws a random one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from wordline.errors import WordlineError
from wordline.isa import instruction_set
from wordline.isa.bounds import Bounds
from wordline.isa.declare import Engine
from wordline.isa.program import Program
from wordline.isa.verify import verify_program
from wordline.machines import Machine
from wordline.sim.bank_memory import BankMemory
from wordline.sim.generation import generation_unit
from wordline.sim.processor import LoadedStream, Processor

#: Longest run of one processor between two draws of a random interleaving.
RANDOM_BURST = 24
WINDOW_ALIGNMENT = 4096


@dataclass
class Submission:
    """What lives as long as one execution: arguments, shared registers and signals, all zero at its start."""

    argument_base: int
    shared: npt.NDArray[np.int32]
    producers: dict[int, tuple[int, ...]]
    counts: dict[tuple[int, int], int] = field(default_factory=dict)

    def add_signal(self, signal: int, channel: int) -> None:
        self.counts[signal, channel] = self.counts.get((signal, channel), 0) + 1

    def signal_value(self, signal: int) -> int:
        """The smallest count over the channels of the producing stream; 0 if nobody produces it."""
        return min((self.counts.get((signal, channel), 0) for channel in self.producers.get(signal, ())), default=0)


class _BankState:
    """What a channel has besides its rows: the buffer, and accumulators in every bank."""

    def __init__(self, machine: Machine, memory: BankMemory, channel: int) -> None:
        lanes = machine.organisation.column_bytes // 2
        self.buffer = np.zeros((machine.buffer.columns, lanes), dtype=np.uint16)
        self.accumulators = np.zeros((machine.bank_unit.accumulators, machine.organisation.banks), dtype=np.float32)


class ReferenceDevice:
    """A whole device in NumPy, with the same methods as the native functional model.

    DRAM, the state of channels and scratch start as zero and keep their contents from one execution to the next.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.bounds = Bounds.of(machine)
        self.channels = machine.organisation.channels
        self.memory = BankMemory(machine)
        unit = generation_unit(machine)
        kind = _BankState if unit is None else unit.ChannelState
        self.own = [kind(machine, self.memory, channel) for channel in range(self.channels)]
        self.scratch_memory = np.zeros(self.channels * self.bounds.scratch_bytes, dtype=np.uint8)
        self.controller_memory = np.zeros(self.bounds.controller_words, dtype=np.int32)
        self.host_windows: dict[int, npt.NDArray[np.uint8]] = {}
        self._next_window = WINDOW_ALIGNMENT
        self._programs: dict[int, list[LoadedStream]] = {}
        self._next_slot = 0

    def load_program(self, image: bytes | memoryview | Program) -> int:
        """Check a program and return its slot. Raises ``WordlineError`` for a program that this machine cannot run."""
        isa = instruction_set(self.machine.generation)
        program = image if isinstance(image, Program) else Program.from_bytes(isa, image)
        verify_program(program, self.machine)
        slot, self._next_slot = self._next_slot, self._next_slot + 1
        self._programs[slot] = [LoadedStream(stream) for stream in program.streams]
        return slot

    def unload_program(self, slot: int) -> None:
        """Forget a loaded program."""
        self._loaded(slot)
        del self._programs[slot]

    def bank_write(self, first_row: int, rows: int, data: bytes | memoryview | npt.NDArray[np.uint16]) -> None:
        """Write rows of all banks of all channels: uint16 [row][channel][bank][column][lane]."""
        self.memory.write(first_row, rows, data)

    def bank_read(self, first_row: int, rows: int) -> bytes:
        """Read rows in the order of :meth:`bank_write`."""
        return self.memory.read(first_row, rows)

    def bank_fill_zero(self, first_row: int, rows: int, channel_mask: int) -> None:
        """Zero rows of the channels in the mask."""
        self.memory.fill_zero(first_row, rows, channel_mask)

    def cmem_write(self, word: int, values: npt.ArrayLike) -> None:
        """Write int32 words of controller memory."""
        data = np.asarray(values, dtype=np.int32).reshape(-1)
        self._check_words(word, data.size)
        self.controller_memory[word : word + data.size] = data

    def cmem_read(self, word: int, count: int) -> npt.NDArray[np.int32]:
        """A copy of ``count`` words of controller memory."""
        self._check_words(word, count)
        return self.controller_memory[word : word + count].copy()

    def scratch(self) -> npt.NDArray[np.uint8]:
        """All scratch, uint8 [channels * bytes_per_channel], as a view."""
        return self.scratch_memory

    def map_host(self, buffer: npt.NDArray[np.uint8] | bytearray) -> int:
        """Open a window of host memory to the device; returns its address."""
        window = np.frombuffer(buffer, dtype=np.uint8)
        if not window.flags.writeable:
            raise WordlineError("bad-range", "host memory is read-only", remedy="map a writable buffer")
        address = self._next_window
        self.host_windows[address] = window
        self._next_window += (window.size // WINDOW_ALIGNMENT + 2) * WINDOW_ALIGNMENT  # never adjacent to the next one
        return address

    def unmap_host(self, address: int) -> None:
        """Close a window."""
        if self.host_windows.pop(address, None) is None:
            raise WordlineError("bad-range", f"no host window is open at {address:#x}")

    def execute(
        self, slot: int, argument_base: int = 0, *, seed: int | None = None, instruction_limit: int | None = None
    ) -> npt.NDArray[np.int32]:
        """Run a loaded program to its end; returns the shared registers as it left them.

        Without a seed each processor runs until it blocks, in stream and channel order. ``instruction_limit`` bounds
        the instructions of each processor. Raises :class:`wordline.sim.fault.Fault`; memories then hold what was done
        before.
        """
        streams = self._loaded(slot)
        shared = np.zeros(self.machine.command_processor.shared_registers, dtype=np.int32)
        members = [_channels(stream) for stream in streams]
        producers = {
            instr.fields["signal"]: channels
            for stream, channels in zip(streams, members, strict=True)
            for instr in stream.instrs
            if instr.name == "SIGNAL"
        }
        submission = Submission(argument_base, shared, producers)
        processors = [
            Processor(self, submission, index, stream, channel)
            for index, (stream, channels) in enumerate(zip(streams, members, strict=True))
            for channel in channels
        ]
        _Scheduler(processors, seed, instruction_limit).run()
        return shared

    def _loaded(self, slot: int) -> list[LoadedStream]:
        if slot not in self._programs:
            raise WordlineError("bad-range", f"no program is loaded in slot {slot}")
        return self._programs[slot]

    def _check_words(self, word: int, count: int) -> None:
        if word < 0 or count < 0 or word + count > self.bounds.controller_words:
            raise WordlineError(
                "bad-range", f"controller memory words {word}..{word + count} of {self.bounds.controller_words}"
            )


def _channels(stream: LoadedStream) -> tuple[int, ...]:
    if stream.engine is not Engine.CHANNEL:
        return (0,)
    return tuple(channel for channel in range(stream.channel_mask.bit_length()) if stream.channel_mask >> channel & 1)


class _Scheduler:
    """Runs processors until all have finished. Raises the fault "deadlock" when none of them can go on."""

    def __init__(self, processors: list[Processor], seed: int | None, instruction_limit: int | None) -> None:
        self._processors = processors
        self._random = random.Random(seed) if seed is not None else None
        self._limit = instruction_limit
        self._executed = dict.fromkeys(processors, 0)

    def run(self) -> None:
        running = [p for p in self._processors if not p.finished]
        while running:
            if self._random is not None:
                self._random.shuffle(running)
            progress = False
            for processor in running:
                most = self._random.randint(1, RANDOM_BURST) if self._random is not None else None
                progress |= self._burst(processor, most)
            running = [p for p in running if not p.finished]
            if running and not progress:
                first = min(running, key=lambda p: (p.stream_index, p.channel))
                raise first.fault("deadlock: every stream that has not ended waits for a signal")

    def _burst(self, processor: Processor, most: int | None) -> bool:
        """At most ``most`` instructions of a processor; whether it executed any."""
        executed = 0
        while not processor.finished and executed != most:
            if self._limit is not None and self._executed[processor] >= self._limit:
                raise processor.fault("the instruction limit of this run is reached")
            if not processor.step():
                break
            executed += 1
            self._executed[processor] += 1
        return executed > 0
