"""The simulator's models behind the device interface in Python: what the native simulated device must equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from wordline import _native
from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.runtime.device_interface import Capability, ErrorCode
from wordline.runtime.software_device import DeviceError, SoftwareDevice


class PythonSim(SoftwareDevice):
    """Values by ``FunctionalModel``, cycles by ``TimingModel``."""

    capabilities = Capability.FUNCTIONAL | Capability.TIMING

    def __init__(self, machine: Machine) -> None:
        self._model = _native.FunctionalModel(machine.flat())
        self._timing = _native.TimingModel(machine.flat())
        self._programs: dict[int, tuple[int, int]] = {}
        self._profile: Any = None
        super().__init__(machine)

    def map_host(self, buffer: npt.NDArray[np.uint8]) -> int:
        address = int(self._model.map_host(buffer))
        self._windows[address] = buffer
        return address

    def unmap_host(self, address: int) -> None:
        self._model.unmap_host(address)
        super().unmap_host(address)

    def last_profile(self) -> Any:
        return self._profile

    def on_bank_write(self, first_row: int, rows: int, data: npt.NDArray[np.uint8]) -> None:
        self._model.bank_write(first_row, rows, data)

    def on_bank_read(self, first_row: int, rows: int, data: npt.NDArray[np.uint8]) -> None:
        data[:] = np.frombuffer(self._model.bank_read(first_row, rows), np.uint8)

    def on_bank_fill(self, first_row: int, rows: int, channel_mask: int) -> None:
        self._model.bank_fill_zero(first_row, rows, channel_mask)

    def on_load(self, slot: int, image: bytes) -> None:
        try:
            self._programs[slot] = self._model.load_program(image), self._timing.load_program(image)
        except WordlineError as error:
            raise DeviceError(ErrorCode.BAD_PROGRAM, str(error)) from error

    def on_unload(self, slot: int) -> None:
        functional, timing = self._programs.pop(slot)
        self._model.unload_program(functional)
        self._timing.unload_program(timing)

    def on_execute(self, slot: int, argument_base: int, flags: int) -> int:
        functional, timing = self._programs[slot]
        cycles = 0
        try:
            if flags & Capability.TIMING:
                self._profile = self._timing.run(timing, argument_base, self.cmem)
                cycles = int(self._profile.cycles)
            if flags & Capability.FUNCTIONAL:
                self._model.cmem_write(0, self.cmem)
                self._model.execute(functional, argument_base)
                self.cmem[:] = self._model.cmem_read(0, self.cmem.size)
        except WordlineError as error:
            raise DeviceError(ErrorCode.FAULT, error.what) from error
        return cycles
