"""``sim:MACHINE``: the native simulator in this process, values and cycles."""

from __future__ import annotations

from typing import cast

from wordline.machines import Machine
from wordline.runtime.ring import DeviceInterface

DESCRIPTION = "simulator: computes every value bit-exactly and counts cycles"


def connect(machine: Machine) -> DeviceInterface:
    """A new simulated device."""
    from wordline import _native

    return cast(DeviceInterface, _native.SimDevice(machine.native(), machine.hash))
