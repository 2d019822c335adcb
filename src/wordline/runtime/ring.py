"""The host's side of the device interface: set-up, descriptors out, completions in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.runtime.device_interface import (
    COMPLETION,
    DESCRIPTOR,
    DEVICE_ID,
    INTERFACE_VERSION,
    OPERANDS,
    Capability,
    Completion,
    Opcode,
    Register,
)

ENTRIES = 64


class DeviceInterface(Protocol):
    """A device as a driver reaches it: registers, and windows onto host memory. All values are unsigned."""

    def mmio_read(self, offset: int) -> int:
        """Read a 32-bit register."""

    def mmio_write(self, offset: int, value: int) -> None:
        """Write a 32-bit register."""

    def map_host(self, buffer: npt.NDArray[np.uint8]) -> int:
        """Open a window onto ``buffer`` (contiguous; read-only if the array is) and return its device address."""

    def unmap_host(self, address: int) -> None:
        """Close the window that starts at ``address``."""

    def advance(self) -> bool:
        """Simulated devices: process pending descriptors."""

    def fault_text(self) -> str:
        """What the last error was, for people."""

    def last_profile(self) -> Any:
        """Simulated devices: the timing result of the last EXECUTE with timing, or None."""


class Ring:
    """Submission and completion rings of one device."""

    def __init__(self, interface: DeviceInterface, machine: Machine) -> None:
        """Check that the device is the one expected, reset it and give it its rings.

        Raises:
            WordlineError: "device-incompatible" (not a wordline device, another interface version), or
                "machine-mismatch".
        """
        self.interface = interface
        _check_identity(interface, machine)
        self.capabilities = Capability(interface.mmio_read(Register.CAPS))
        self._descriptors = np.zeros(ENTRIES * DESCRIPTOR.size, np.uint8)
        self._completions = np.zeros(ENTRIES * COMPLETION.size, np.uint8)
        self._base = interface.map_host(self._descriptors)
        self._completion_base = interface.map_host(self._completions)
        self.reset()

    def reset(self) -> None:
        """Reset the device: memory contents and programs are lost, and unanswered descriptors with them."""
        write = self.interface.mmio_write
        write(Register.RESET, 1)
        for register, address in (
            (Register.RING_BASE_LO, self._base),
            (Register.COMPLETION_BASE_LO, self._completion_base),
        ):
            write(register, address & 0xFFFF_FFFF)
            write(register + 4, address >> 32)
        write(Register.RING_ENTRIES, ENTRIES)
        self._tail = self._seen = 0

    @property
    def full(self) -> bool:
        """Whether a completion must be taken before the next descriptor fits."""
        return self._tail - self._seen == ENTRIES

    def push(self, opcode: Opcode, flags: int, operands: tuple[int, ...]) -> int:
        """Write a descriptor and ring the doorbell; returns its tag. The ring must not be full."""
        tag = self._tail & 0xFFFF_FFFF
        padded = operands + (0,) * (OPERANDS - len(operands))
        DESCRIPTOR.pack_into(
            self._descriptors.data, self._tail % ENTRIES * DESCRIPTOR.size, opcode, flags, tag, *padded
        )
        self._tail += 1
        self.interface.mmio_write(Register.RING_TAIL, self._tail & 0xFFFF_FFFF)
        return tag

    def completions(self) -> Iterator[Completion]:
        """Completions that have arrived since the last call, in order."""
        new = (self.interface.mmio_read(Register.COMPLETION_TAIL) - self._seen) & 0xFFFF_FFFF
        for _ in range(new):
            at = self._seen % ENTRIES * COMPLETION.size
            self._seen += 1
            yield Completion(*COMPLETION.unpack_from(self._completions.data, at))


def _check_identity(interface: DeviceInterface, machine: Machine) -> None:
    found, version = interface.mmio_read(Register.ID), interface.mmio_read(Register.INTERFACE_VERSION)
    if found != DEVICE_ID or version != INTERFACE_VERSION:
        raise WordlineError(
            "device-incompatible",
            f"the device reports ID {found:#010x}, interface version {version}; "
            f"this build speaks to {DEVICE_ID:#010x}, version {INTERFACE_VERSION}",
            remedy="bring device and software to the same interface version",
        )
    words = (interface.mmio_read(Register.MACHINE_HASH + 4 * i) for i in range(8))
    machine_hash = "".join(f"{word:08x}" for word in words)
    if machine_hash != machine.hash:
        raise WordlineError(
            "machine-mismatch",
            f"the device was built as another machine than {machine.name!r} "
            f"(hash {machine_hash[:12]}, wanted {machine.hash[:12]})",
            remedy="name the machine that the device was built as",
        )
