"""A matrix-vector product from activations to activations: the host spreads x, the blocks multiply, the host adds up.

The host's part are vector passes like any other: x becomes the scalars of each pseudo-channel's tiles in fp16, and the
partial sums of the input groups are added in fp32.
"""

from __future__ import annotations

from wordline.compiler.kernel.ir import Address, Item, Task
from wordline.compiler.kernel.scratch import ELEMENT_BYTES, ScratchBuffer, ScratchTensor
from wordline.compiler.kernels.hbm2_pim.gemv import TILE_INPUTS, GemvPlan, gemv
from wordline.compiler.kernels.hbm2_pim.state import ChannelState
from wordline.compiler.vector.builder import PassBuilder
from wordline.isa.declare import Engine
from wordline.machines import Machine

TILE_BYTES = 32
"""A tile's scalars in scratch: 8 multipliers, and the 8 adders that the same write loads."""
TERMS = 4
"""Vectors that a pass adds, the sum so far among them: what a pass has operands for."""


def linear_tasks(
    machine: Machine, plan: GemvPlan, state: ChannelState, name: str, x: ScratchTensor, y: ScratchTensor, loc: str = ""
) -> list[Task]:
    """The tasks of y = W x, in order; ``x`` of any format and ``y``, float32, are contiguous from channel 0 on."""
    scalars = ScratchBuffer(f"{name}.x", plan.input_bytes)
    sums = ScratchBuffer(f"{name}.sums", plan.result_bytes)
    early, body = gemv(plan, state, Address(scalars), Address(sums))
    before, after = spread(machine, plan, x, scalars), add_groups(machine, plan, sums, y)
    return [
        Task(Engine.VECTOR, f"{name}.spread", name, "vector", loc, before, (x.buffer,), (scalars,)),
        Task(Engine.CHANNEL, name, name, "gemv", loc, body, (scalars,), (sums,), early),
        Task(Engine.VECTOR, f"{name}.add", name, "vector", loc, after, (sums,), (y.buffer,)),
    ]


def spread(machine: Machine, plan: GemvPlan, x: ScratchTensor, scalars: ScratchBuffer) -> tuple[Item, ...]:
    """x rounded to fp16, input group by input group, to the pseudo-channels of every output group; zeros beyond k."""
    channel, size = machine.scratch.bytes_per_channel, x.element_bytes
    items: list[Item] = []
    for group in range(plan.output_groups):
        step = PassBuilder(machine, (plan.input_groups, plan.tiles, TILE_INPUTS), high=plan.k)
        value = step.load(x.buffer, x.offset, (plan.tiles * TILE_INPUTS * size, TILE_INPUTS * size, size), x.dtype)
        first = group * plan.input_groups * channel
        step.store(value, scalars, first, (channel, TILE_BYTES, ELEMENT_BYTES["f16"]), "f16")
        items.append(step.build())
    return tuple(items)


def add_groups(machine: Machine, plan: GemvPlan, sums: ScratchBuffer, y: ScratchTensor) -> tuple[Item, ...]:
    """y in the order of :func:`wordline.compiler.kernels.hbm2_pim.gemv.combine`."""
    channel, read, write = machine.scratch.bytes_per_channel, ELEMENT_BYTES["f16"], ELEMENT_BYTES["f32"]
    items: list[Item] = []
    for group in range(plan.output_groups):
        for first in dict.fromkeys(part.first for part in plan.passes):
            begin = group * plan.outputs + first
            parts = [part for part in plan.passes if part.first == first]
            count = min(plan.pass_outputs(parts[0]), plan.outputs - first, plan.m - begin)
            if count <= 0:
                continue
            places = [
                (group * plan.input_groups + inputs) * channel + read * part.result
                for inputs in range(plan.input_groups)
                for part in parts
            ]
            target = y.offset + write * begin
            so_far = False
            while places:
                step = PassBuilder(machine, (count,))
                terms = [step.load(y.buffer, target, (write,))] if so_far else []
                room = TERMS - len(terms)
                terms += [step.load(sums, place, (read,), "f16") for place in places[:room]]
                total = terms[0]
                for term in terms[1:]:
                    total = total + term
                step.store(total, y.buffer, target, (write,))
                items.append(step.build())
                places, so_far = places[room:], True
    return tuple(items)
