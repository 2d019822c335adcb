"""The simulator unit of a generation: the package of ``wordline.sim`` with its name, where it has one.

A unit has ``ChannelState(machine, memory, channel)``, what channel commands see of a channel as ``state.own``, and the
modules ``limits`` and ``timing``. A generation without a unit is the one that the modules of this folder and the native
models implement.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from wordline.machines import Machine


def generation_unit(machine: Machine) -> Any | None:
    """The unit of the machine's generation, or None."""
    name = f"wordline.sim.{machine.generation.replace('-', '_')}"
    return import_module(name) if find_spec(name) is not None else None
