"""GEMV in the banks: y = W x for one or more matrices that share x.

Per group of local rows: fill the buffer with a chunk of x, one burst of MACs per local row, next chunk; then read the
accumulators out and zero them. The next row is opened before each register-mode visit, so the visit hides under the
row turn; refresh is offered at every row turn, where it costs no extra turn.
"""

from __future__ import annotations

from wordline.compiler.kernel.builder import Builder, turn_row
from wordline.compiler.kernel.ir import Address, Command, Item, command
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, linear
from wordline.compiler.layout import Chunk, WeightStream


def _fill(builder: Builder, stream: WeightStream, x: ScratchTensor, chunk: Chunk) -> None:
    source = Address(x.buffer, linear(x.offset + chunk.first_column * stream.column_bytes))
    builder.emit("WRGB", buffer=0, count=chunk.columns, source=source)


def _multiply(builder: Builder, stream: WeightStream, chunk: Chunk, row_shift: IntLike) -> None:
    """The chunk's bursts; its first row is open already."""
    commands: list[Command] = []
    open_now = stream.first_row + chunk.position // stream.row_columns
    for row, column, buffer, accumulator, count in stream.bursts(chunk):
        if row != open_now:
            commands.extend(turn_row(linear(row) + row_shift))
            open_now = row
        commands.append(
            command(
                "MAC16", row=linear(row) + row_shift, column=column, buffer=buffer, accumulator=accumulator, count=count
            )
        )
    builder.rolled(commands)


def gemv(
    stream: WeightStream, x: ScratchTensor, result: ScratchBuffer, zeros: ScratchBuffer
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body) of the task.

    ``x``: bf16 in every channel, K padded with zeros to whole columns; ``result``: a column for each local row, which
    holds one bf16 of every bank.
    """
    builder = Builder()
    groups = list(stream.groups())
    refill = len(groups[0]) > 1

    def zero(rows: int) -> None:
        builder.emit("WRMAC16", accumulator=0, count=rows, source=Address(zeros))

    def open_chunk(chunk: Chunk, row_shift: IntLike) -> None:
        """Open the chunk's first row, unless it goes on in the row that is open."""
        if chunk.position % stream.row_columns == 0:
            builder.extend(turn_row(linear(stream.first_row + chunk.position // stream.row_columns) + row_shift))

    def body(chunks: list[Chunk], row_shift: IntLike, first: bool) -> None:
        for index, chunk in enumerate(chunks):
            if index or (refill and not first):
                if index:
                    open_chunk(chunk, row_shift)
                _fill(builder, stream, x, chunk)
            _multiply(builder, stream, chunk, row_shift)

    def read(rows: int, target: IntLike) -> None:
        builder.emit("RDMAC16", accumulator=0, count=rows, target=Address(result, linear(target)))

    builder.extend(turn_row(stream.first_row))
    zero(groups[0][0].rows)
    prologue = builder.take()
    _fill(builder, stream, x, groups[0][0])
    body(groups[0], 0, True)

    # Groups after the first are equal up to whole DRAM rows when a group is a whole number of rows; otherwise every
    # `period` groups are.
    group_bytes = stream.group * stream.column_bytes
    per_group = stream.group * stream.columns
    period = next(p for p in range(1, stream.row_columns + 1) if p * per_group % stream.row_columns == 0)
    full = sum(chunks[0].rows == stream.group for chunks in groups)
    loops = max(0, (full - 1) // period)
    rows_per_loop = period * per_group // stream.row_columns

    def step(index: int, row_shift: IntLike, target_shift: IntLike) -> None:
        chunks, previous = groups[index], groups[index - 1]
        open_chunk(chunks[0], row_shift)
        read(previous[0].rows, linear((index - 1) * group_bytes) + target_shift)
        zero(chunks[0].rows)
        body(chunks, row_shift, False)

    if loops > 1:
        with builder.loop(loops, "group") as register:
            for index in range(1, period + 1):
                step(index, linear(register) * rows_per_loop, linear(register) * (period * group_bytes))
        done = 1 + loops * period
    else:
        done = 1
    for index in range(done, len(groups)):
        step(index, 0, 0)
    read(groups[-1][0].rows, (len(groups) - 1) * group_bytes)
    return prologue, builder.take()
