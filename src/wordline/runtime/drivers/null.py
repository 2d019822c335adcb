"""``null:MACHINE``: computes nothing, needs no weights; programs are loaded and timed as on the simulator."""

from __future__ import annotations

from typing import Any

from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.runtime.device_interface import Capability, ErrorCode
from wordline.runtime.ring import DeviceInterface
from wordline.runtime.software_device import DeviceError, SoftwareDevice

DESCRIPTION = "no values: counts cycles only, needs no weights"


def connect(machine: Machine) -> DeviceInterface:
    """A new device."""
    return NullDevice(machine)


class NullDevice(SoftwareDevice):
    """The timing model behind the device interface. DRAM keeps no data."""

    capabilities = Capability.TIMING

    def __init__(self, machine: Machine) -> None:
        from wordline import _native

        self._model = _native.TimingModel(machine.native())
        self._programs: dict[int, int] = {}
        self._profile: Any = None
        super().__init__(machine)

    def last_profile(self) -> Any:
        return self._profile

    def on_reset(self) -> None:
        for slot in list(self._programs):
            self.on_unload(slot)

    def on_load(self, slot: int, image: bytes) -> None:
        try:
            self._programs[slot] = self._model.load_program(image)
        except WordlineError as error:
            raise DeviceError(ErrorCode.BAD_PROGRAM, str(error)) from error

    def on_unload(self, slot: int) -> None:
        self._model.unload_program(self._programs.pop(slot))

    def on_execute(self, slot: int, argument_base: int, flags: int) -> int:
        try:
            self._profile = self._model.run(self._programs[slot], argument_base, self.cmem)
        except WordlineError as error:
            raise DeviceError(ErrorCode.FAULT, f"{error.what} ({error.where})") from error
        return int(self._profile.cycles)
