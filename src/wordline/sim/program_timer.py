"""Cycles of a program on a machine of any generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from wordline.isa import instruction_set
from wordline.isa.program import Program
from wordline.machines import Machine
from wordline.sim.generation import generation_unit
from wordline.sim.timing import time_program


class Timed(Protocol):
    """What every generation's result says."""

    @property
    def cycles(self) -> int: ...


ProgramTimer = Callable[[bytes, int, npt.NDArray[np.int32]], Timed]
"""(program image, word address of the argument block, words of the controller's memory) -> cycles of one submission."""


def program_timer(machine: Machine) -> ProgramTimer:
    """The timer of the machine's generation: its unit's model, or the native one."""
    unit = generation_unit(machine)
    run = time_program if unit is None else unit.timing.time_program

    def time(image: bytes, argument_base: int, memory: npt.NDArray[np.int32]) -> Timed:
        program = Program.from_bytes(instruction_set(machine.generation), image)
        result: Timed = run(machine, program, memory, argument_base=argument_base)
        return result

    return time
