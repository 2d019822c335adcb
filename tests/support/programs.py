"""Builds and runs device programs from compiler tasks, for tests of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wordline.compiler.codegen import GeneratedProgram, generate
from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.memory import ScratchPlan, plan_scratch
from wordline.compiler.synchronise import synchronise
from wordline.isa import instruction_set
from wordline.machines import Machine
from wordline.numerics.formats import bf16_bits_to_f32, f32_to_bf16_bits
from wordline.sim.reference import ReferenceDevice


@dataclass(frozen=True)
class Built:
    """Tasks as a program, with the scratch plan."""

    machine: Machine
    plan: ScratchPlan
    generated: GeneratedProgram

    def offset(self, buffer: ScratchBuffer) -> int:
        return self.plan.offsets()[buffer]


def build(machine: Machine, tasks: Sequence[Task], permanent: Sequence[ScratchBuffer]) -> Built:
    """Plan, synchronise and encode ``tasks``."""
    plan = plan_scratch(machine, tasks, permanent)
    generated = generate(machine, instruction_set(machine.generation), tasks, plan, synchronise(tasks, plan))
    return Built(machine, plan, generated)


def put_everywhere(device: ReferenceDevice, built: Built, tensor: ScratchTensor, values: NDArray[np.float32]) -> None:
    """Write ``values`` as bf16 into every channel's copy of ``tensor``."""
    size = built.machine.scratch.bytes_per_channel
    data = np.zeros(tensor.capacity, np.uint16)
    data[: values.size] = f32_to_bf16_bits(values.astype(np.float32)).reshape(-1)
    start = built.offset(tensor.buffer) + tensor.offset
    for channel in range(built.machine.organisation.channels):
        device.scratch()[channel * size + start :][: data.nbytes] = data.view(np.uint8)


def get(device: ReferenceDevice, built: Built, tensor: ScratchTensor) -> NDArray[np.float32]:
    """The elements of ``tensor`` as float32."""
    address = np.zeros(1, np.int64)
    for extent, stride in tensor.dims:
        address = (address[:, None] + np.arange(extent) * stride).reshape(-1)
    address = address + built.offset(tensor.buffer) + tensor.offset
    scratch = device.scratch()
    if tensor.dtype == "bf16":
        values = bf16_bits_to_f32(scratch.view(np.uint16)[address // 2])
    else:
        values = scratch.view(np.float32)[address // 4]
    return values[: tensor.elements]


def bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """``values`` rounded to bf16."""
    return bf16_bits_to_f32(f32_to_bf16_bits(values.astype(np.float32)))
