"""``reference:MACHINE``: the definition of every instruction, in NumPy, for machines of every generation; slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.runtime.device_interface import Capability, ErrorCode
from wordline.runtime.ring import DeviceInterface
from wordline.runtime.software_device import DeviceError, SoftwareDevice

DESCRIPTION = "reference: computes every value by its definition and counts cycles, slowly"


def connect(machine: Machine) -> DeviceInterface:
    """A new device."""
    return ReferenceDriver(machine)


class ReferenceDriver(SoftwareDevice):
    """Values by the reference device, cycles by the generation's timing model."""

    capabilities = Capability.FUNCTIONAL | Capability.TIMING

    def __init__(self, machine: Machine) -> None:
        from wordline.sim.program_timer import program_timer
        from wordline.sim.reference import ReferenceDevice

        self._device = ReferenceDevice(machine)
        self._time = program_timer(machine)
        self._programs: dict[int, tuple[int, bytes]] = {}
        self._profile: Any = None
        super().__init__(machine)

    def map_host(self, buffer: npt.NDArray[np.uint8]) -> int:
        address = self._device.map_host(buffer)
        self._windows[address] = buffer
        return address

    def unmap_host(self, address: int) -> None:
        self._device.unmap_host(address)
        super().unmap_host(address)

    def last_profile(self) -> Any:
        return self._profile

    def on_reset(self) -> None:
        for slot in list(self._programs):
            self.on_unload(slot)

    def on_bank_write(self, first_row: int, rows: int, data: npt.NDArray[np.uint8]) -> None:
        self._device.bank_write(first_row, rows, data.tobytes())

    def on_bank_read(self, first_row: int, rows: int, data: npt.NDArray[np.uint8]) -> None:
        data[:] = np.frombuffer(self._device.bank_read(first_row, rows), np.uint8)

    def on_bank_fill(self, first_row: int, rows: int, channel_mask: int) -> None:
        self._device.bank_fill_zero(first_row, rows, channel_mask)

    def on_load(self, slot: int, image: bytes) -> None:
        try:
            self._programs[slot] = self._device.load_program(image), image
        except WordlineError as error:
            raise DeviceError(ErrorCode.BAD_PROGRAM, str(error)) from error

    def on_unload(self, slot: int) -> None:
        self._device.unload_program(self._programs.pop(slot)[0])

    def on_execute(self, slot: int, argument_base: int, flags: int) -> int:
        loaded, image = self._programs[slot]
        cycles = 0
        try:
            if flags & Capability.TIMING:
                self._profile = self._time(image, argument_base, self.cmem)
                cycles = int(self._profile.cycles)
            if flags & Capability.FUNCTIONAL:
                self._device.cmem_write(0, self.cmem)
                self._device.execute(loaded, argument_base)
                self.cmem[:] = self._device.cmem_read(0, self.cmem.size)
        except WordlineError as error:
            raise DeviceError(ErrorCode.FAULT, f"{error.what} ({error.where})") from error
        return cycles
