"""The drivers, and the way from a device string to an open device."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, cast

from wordline.errors import WordlineError
from wordline.machines import Machine, list_machines, load_machine
from wordline.runtime.device import Device
from wordline.runtime.ring import DeviceInterface
from wordline.runtime.specification import DeviceSpec, parse_device

#: Name in device strings -> module, imported when the driver is used.
DRIVERS = {name: f"wordline.runtime.drivers.{name}" for name in ("sim", "null", "reference")}


class Driver(Protocol):
    """What a driver's module provides."""

    DESCRIPTION: str

    def connect(self, machine: Machine) -> DeviceInterface:
        """Reach the device of this machine. Raises ``WordlineError`` if there is none."""


@dataclass(frozen=True)
class DeviceInfo:
    """A driver with a machine; the description says if it cannot be opened yet."""

    name: str
    description: str
    machine: Machine


def driver(name: str) -> Driver:
    """The driver of that name. Raises ``WordlineError("unknown-driver")``."""
    if name not in DRIVERS:
        near = difflib.get_close_matches(name, DRIVERS, n=1, cutoff=0.5) or list(DRIVERS)
        raise WordlineError(
            "unknown-driver",
            f"there is no device driver {name!r}",
            remedy=f"use {' or '.join(f'{n}:MACHINE' for n in near)}",
        )
    return cast(Driver, import_module(DRIVERS[name]))


def open_device(device: str | DeviceSpec) -> Device:
    """Open a device by its string ("sim:gddr6-aim-chip").

    Raises:
        WordlineError: "bad-device-string", "unknown-driver", "unknown-machine", or what the driver reports.
    """
    if isinstance(device, str):
        name = device.partition(":")[0]
        if ":" in device:
            driver(name)  # a wrong driver is reported before a wrong machine
        device = parse_device(device)
    return Device(device, driver(device.driver).connect(device.machine))


def _implements(name: str, machine: Machine) -> bool:
    """Whether a driver has the machine's generation: the native ones may not."""
    return machine.has_native or name == "reference"


def list_devices() -> list[DeviceInfo]:
    """Every driver with every machine that comes with wordline."""
    machines = [load_machine(name) for name in list_machines()]
    return [
        DeviceInfo(
            str(DeviceSpec(name, machine)),
            driver(name).DESCRIPTION if _implements(name, machine) else "not yet: this driver lacks the generation",
            machine,
        )
        for name in DRIVERS
        for machine in machines
    ]
