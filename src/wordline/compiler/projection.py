"""The tasks of a GEMV: its stages in the banks and the additions of partial sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wordline.compiler.gemv_plan import plan_stages
from wordline.compiler.kernel.ir import Task
from wordline.compiler.kernel.scratch import ELEMENT_BYTES, ScratchBuffer, ScratchDType, ScratchTensor
from wordline.compiler.kernels.gemv import Stage, gemv
from wordline.compiler.kernels.partial_sums import add_parts
from wordline.compiler.layout import WeightStream
from wordline.isa.declare import Engine
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class Projection:
    """``tasks`` in order; ``results``: the product with each matrix of the stream."""

    tasks: tuple[Task, ...]
    results: tuple[ScratchTensor, ...]


def project(
    machine: Machine,
    stream: WeightStream,
    x: ScratchTensor,
    zeros: ScratchBuffer,
    result: str,
    name: str,
    op: str,
    loc: str = "",
    predicate: int | None = None,
    *,
    awaited: bool = True,
) -> Projection:
    """The GEMV of ``stream`` with ``x``.

    ``result``: name of the buffer of the results, which are bf16 as the banks read them out, or float32 if they are
    sums of partial results. ``name``, ``op``, ``loc``, ``predicate``: as in
    :class:`~wordline.compiler.kernel.ir.Task`. ``awaited``: the channels wait for x at the start.
    """
    ends = plan_stages(machine, stream)
    column = machine.organisation.column_bytes
    whole = not stream.partial
    stages = [
        Stage(first, end, ScratchBuffer(result if whole else f"{result}.part{index}", (end - first) * column))
        for index, (first, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]
    sums = stages[0].buffer if whole else ScratchBuffer(result, 2 * stream.total_rows * column)
    tasks = []
    for stage, (prologue, body) in zip(stages, gemv(stream, x, zeros, stages, awaited=awaited), strict=True):
        given = (x.buffer,)
        tasks.append(Task(Engine.CHANNEL, name, op, "gemv", loc, body, given, (stage.buffer,), prologue, predicate))
        if not whole:
            addition = add_parts(machine, stream, stage, sums)
            label = f"add the parts of {name}"
            added = (stage.buffer,) if stage.first < stream.total_rows else (stage.buffer, sums)
            tasks.append(Task(Engine.VECTOR, label, op, "gemv", loc, addition, added, (sums,), (), predicate))
    return Projection(tuple(tasks), tuple(_results(machine, stream, sums)))


def _results(machine: Machine, stream: WeightStream, buffer: ScratchBuffer) -> Iterator[ScratchTensor]:
    """Output m of a matrix: on channel m // shard (of the first part, if K is split), at position m % shard."""
    dtype: ScratchDType = "f32" if stream.partial else "bf16"
    size = ELEMENT_BYTES[dtype]
    offset = 0
    for matrix, elements in enumerate(stream.outputs):
        shard = stream.shard(matrix)
        dims = ((stream.part_channels, machine.scratch.bytes_per_channel), (shard, size))
        yield ScratchTensor(buffer, dtype, dims, offset, False, elements)
        offset += shard * size
