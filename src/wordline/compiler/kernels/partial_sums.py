"""Where the banks read out partial sums of a GEMV: added up on the vector unit, stage by stage."""

from __future__ import annotations

from wordline.compiler.kernel.ir import Item
from wordline.compiler.kernel.scratch import ELEMENT_BYTES, ScratchBuffer
from wordline.compiler.kernels.gemv import Stage
from wordline.compiler.layout import WeightStream
from wordline.compiler.vector.builder import PassBuilder
from wordline.machines import Machine


def add_parts(machine: Machine, stream: WeightStream, stage: Stage, result: ScratchBuffer) -> tuple[Item, ...]:
    """Body of the vector task: the sum of a stage's partial results (each rounded to bf16 by its read-out), added in
    float32 in the order of their slices, in a slice in the order of the parts of K.

    ``result``: float32, an output m of the stream where its first part has it; rows follow each other by local row.
    After a slice that is not the last, it holds the sum so far.
    """
    slice_, first = divmod(stage.first, stream.total_rows)
    channel = machine.scratch.bytes_per_channel
    step = PassBuilder(machine, (stream.part_channels, (stage.end - stage.first) * stream.banks))
    read, write = ELEMENT_BYTES["bf16"], ELEMENT_BYTES["f32"]
    offset = first * stream.banks * write
    parts = [step.load(result, offset, (channel, write), "f32")] if slice_ else []
    parts += [
        step.load(stage.buffer, part * stream.part_channels * channel, (channel, read), "bf16")
        for part in range(stream.parts)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    step.store(total, result, offset, (channel, write))
    return (step.build(),)
