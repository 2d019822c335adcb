"""A device in Python whose programs are Python functions: for tests of everything above the device interface."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tests.support.artifacts import ARGUMENTS
from wordline.artifact import ArgumentNames
from wordline.machines import Machine
from wordline.runtime import Device, DeviceSpec
from wordline.runtime.device_interface import Capability, ErrorCode
from wordline.runtime.software_device import DeviceError, SoftwareDevice

Model = Callable[[int, int], npt.NDArray[np.float32]]
"""(token, position) -> logits [vocab]."""


class ScriptedDevice(SoftwareDevice):
    """Whatever program is executed, it takes ``1000 + position`` cycles and its logits are ``model(token, position)``.

    DRAM is kept row by row as bytes; ``log`` names the operations on it in order.
    """

    capabilities = Capability.FUNCTIONAL | Capability.TIMING

    def __init__(self, machine: Machine, model: Model, padded: int = 32) -> None:
        self.model = model
        self.padded = padded
        self.log: list[tuple[object, ...]] = []
        self.fail_at: int | None = None
        super().__init__(machine)

    def on_reset(self) -> None:
        self.row_size = self.machine.organisation.device_row_bytes
        self.rows: dict[int, npt.NDArray[np.uint8]] = {}

    def on_bank_write(self, first_row: int, rows: int, data: npt.NDArray[np.uint8]) -> None:
        self.log.append(("write", first_row, rows))
        for i, row in enumerate(data.reshape(rows, -1)):
            self.rows[first_row + i] = row.copy()

    def on_bank_read(self, first_row: int, rows: int, data: npt.NDArray[np.uint8]) -> None:
        for i, row in enumerate(data.reshape(rows, -1)):
            row[:] = self.rows.get(first_row + i, np.zeros(self.row_size, np.uint8))

    def on_bank_fill(self, first_row: int, rows: int, channel_mask: int) -> None:
        self.log.append(("zero", first_row, rows, channel_mask))

    def on_load(self, slot: int, image: bytes) -> None:
        if image[:4] != b"WLPG":
            raise DeviceError(ErrorCode.BAD_PROGRAM, "no program image")

    def on_execute(self, slot: int, argument_base: int, flags: int) -> int:
        words = self.cmem[argument_base : argument_base + 8]
        token, position, wanted = (int(words[ARGUMENTS[n]]) for n in ("token", "position", "flags"))
        self.log.append(("execute", token, position, wanted))
        if position == self.fail_at:
            raise DeviceError(ErrorCode.FAULT, "row 99999 does not exist", 1 << 48 | 2 << 32 | 3)
        if wanted & ArgumentNames.FLAG_LOGITS and flags & Capability.FUNCTIONAL:
            logits = np.full(self.padded, -np.inf, np.float32)
            values = self.model(token, position)
            logits[: values.size] = values
            words[ARGUMENTS["next_token"]] = np.argmax(logits)
            if wanted & ArgumentNames.FLAG_SEND:
                low, high = words.view(np.uint32)[4:6].tolist()
                bits = (logits.view(np.uint32) >> 16).astype(np.uint16)
                self.host(low | high << 32, bits.nbytes, write=True)[:] = bits.view(np.uint8)
        return 1000 + position

    def page_table(self, base: int, words: int) -> list[int]:
        """Words of controller memory."""
        return [int(word) for word in self.cmem[base : base + words]]


def scripted(machine: Machine, model: Model) -> tuple[Device, ScriptedDevice]:
    """An open device, and the script behind it."""
    script = ScriptedDevice(machine, model)
    return Device(DeviceSpec("script", machine), script), script
