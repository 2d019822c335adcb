"""A device as programs see it: host windows, executables, controller memory, one queue, residency."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.errors import WordlineError
from wordline.runtime.device_interface import PROGRAM_SLOTS, Capability, ExecuteFlag, Register
from wordline.runtime.memory import RangeAllocator
from wordline.runtime.queue import Queue
from wordline.runtime.ring import DeviceInterface, Ring
from wordline.runtime.specification import DeviceSpec
from wordline.runtime.timeline import Scheduler, Semaphore


@dataclass(frozen=True)
class HostBuffer:
    """Host memory that the device can reach: ``data`` (uint8) at the device address ``address``."""

    data: npt.NDArray[np.uint8]
    address: int


@dataclass(frozen=True)
class Executable:
    """A loaded program."""

    slot: int
    image: bytes


class Device:
    """One device. Everything it does goes through its queue; everything that ends is seen on timelines."""

    def __init__(self, spec: DeviceSpec, interface: DeviceInterface, scheduler: Scheduler | None = None) -> None:
        """Raises ``WordlineError`` as :class:`Ring` does."""
        self.spec = spec
        self.machine = spec.machine
        self._interface = interface
        self.scheduler = scheduler or Scheduler()
        self._ring = Ring(interface, spec.machine)
        self.queue = Queue(self._ring, self.scheduler)
        self.epoch = 0
        """How often the device was reset: what was put into its memory in an earlier epoch is gone."""
        self._on_reset: list[Callable[[], None]] = []
        self._forget()

    def _forget(self) -> None:
        self.words = RangeAllocator(self._interface.mmio_read(Register.CMEM_WORDS), "words of controller memory")
        self._slots = RangeAllocator(PROGRAM_SLOTS, "program slots")

    def __str__(self) -> str:
        return str(self.spec)

    @property
    def functional(self) -> bool:
        """Whether the device computes values."""
        return Capability.FUNCTIONAL in self._ring.capabilities

    @property
    def timed(self) -> bool:
        """Whether the device can tell cycles."""
        return Capability.TIMING in self._ring.capabilities

    @property
    def rows(self) -> int:
        """DRAM rows of every bank."""
        return self._interface.mmio_read(Register.ROWS)

    def semaphore(self) -> Semaphore:
        """A new timeline at 0, which waits on this device can bring forward."""
        return Semaphore(self.scheduler)

    def map(self, data: npt.NDArray[np.uint8]) -> HostBuffer:
        """Let the device reach ``data`` (contiguous uint8) until :meth:`unmap`."""
        return HostBuffer(data, self._interface.map_host(data))

    def host_buffer(self, size: int) -> HostBuffer:
        """New zeroed host memory of ``size`` bytes that the device can reach, until :meth:`unmap`."""
        return self.map(np.zeros(size, np.uint8))

    def unmap(self, buffer: HostBuffer) -> None:
        """Close the window; the device can no longer reach the memory."""
        self._interface.unmap_host(buffer.address)

    def load(self, image: bytes) -> Executable:
        """Load a program image. Raises ``WordlineError`` if the device refuses it or has no slot left."""
        slot = self._slots.allocate(1)
        buffer = self.map(np.frombuffer(image, np.uint8))
        try:
            self.queue.load_program(buffer.address, len(image), slot).wait()
        except WordlineError:
            self._slots.free(slot)
            raise
        finally:
            self.unmap(buffer)
        return Executable(slot, image)

    def unload(self, executable: Executable) -> None:
        """Remove a program that nothing submitted still uses."""
        self.queue.unload_program(executable.slot).wait()
        self._slots.free(executable.slot)

    def mode(self, functional: bool = True, timing: bool = True) -> ExecuteFlag:
        """Flags of EXECUTE for what is wanted and what the device can."""
        flags = ExecuteFlag(0)
        if functional and self.functional:
            flags |= ExecuteFlag.FUNCTIONAL
        if timing and self.timed:
            flags |= ExecuteFlag.TIMING
        return flags

    def profile(self) -> Any:
        """Simulated devices: where the cycles of the last timed EXECUTE went; None otherwise."""
        return self._interface.last_profile()

    def on_reset(self, restore: Callable[[], None]) -> None:
        """Call ``restore`` after every reset, to bring back what should survive it."""
        self._on_reset.append(restore)

    def reset(self) -> None:
        """Reset the device. Unfinished operations fail with "device-reset"; resident models are loaded again."""
        error = WordlineError(
            "device-reset", "the device was reset", where=str(self), remedy="start a new session; its tokens are gone"
        )
        self._ring.reset()
        self.epoch += 1
        self.queue.abandon(error)
        self._forget()
        for restore in self._on_reset:
            restore()
