"""Kernels of HBM2-PIM as device programs, and their runs on the reference device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from wordline.compiler.codegen import generate
from wordline.compiler.kernel.ir import Address, Item, Task
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.compiler.kernels.hbm2_pim.gemv import GemvPlan, gemv
from wordline.compiler.kernels.hbm2_pim.state import ChannelState
from wordline.compiler.memory import plan_scratch
from wordline.compiler.synchronise import synchronise
from wordline.isa import instruction_set
from wordline.isa.declare import Engine
from wordline.isa.program import Program
from wordline.machines import Machine

U16 = npt.NDArray[np.uint16]


def gemv_program(
    machine: Machine, plans: Sequence[GemvPlan], state: ChannelState | None = None
) -> tuple[Program, list[tuple[int, int]]]:
    """GEMVs one after the other, and the scratch offsets of input and result of each."""
    state = state or ChannelState()
    buffers = [
        (ScratchBuffer(f"x{i}", plan.input_bytes), ScratchBuffer(f"y{i}", plan.result_bytes))
        for i, plan in enumerate(plans)
    ]
    tasks = []
    for i, (plan, (x, y)) in enumerate(zip(plans, buffers, strict=True)):
        early, body = gemv(plan, state, Address(x), Address(y))
        tasks.append(task(f"gemv{i}", (*early, *body), (x,), (y,)))
    flat = [buffer for pair in buffers for buffer in pair]
    program, offsets = encoded(machine, tasks, flat)
    return program, [(offsets[x], offsets[y]) for x, y in buffers]


def task(
    name: str, items: tuple[Item, ...], reads: tuple[ScratchBuffer, ...] = (), writes: tuple[ScratchBuffer, ...] = ()
) -> Task:
    return Task(Engine.CHANNEL, name, name, "gemv", "", items, reads, writes)


def encoded(
    machine: Machine, tasks: Sequence[Task], buffers: Sequence[ScratchBuffer] = ()
) -> tuple[Program, dict[ScratchBuffer, int]]:
    plan = plan_scratch(machine, tasks, buffers)
    generated = generate(machine, instruction_set(machine.generation), tasks, plan, synchronise(tasks, plan))
    return generated.program, plan.offsets()
