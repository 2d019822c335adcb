"""Embedding row fetch: the token's row of the table is read from the banks that hold it in GEMV layout."""

from __future__ import annotations

from wordline.compiler.arguments import TOKEN
from wordline.compiler.integers import floor_log2
from wordline.compiler.kernel.builder import CHANNEL, Builder
from wordline.compiler.kernel.ir import Address, Item
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import linear
from wordline.compiler.layout import WeightStream
from wordline.compiler.vector.builder import PassBuilder
from wordline.machines import Machine


def fetch_row(stream: WeightStream, row_buffer: ScratchBuffer) -> tuple[Item, ...]:
    """Body of the channel task.

    The channel that holds the token's row (matrix 0 of ``stream``) reads it into ``row_buffer`` as bf16 columns.
    """
    b = Builder()
    shard, bank_bits = stream.shard(0), floor_log2(stream.banks)
    group_bits = floor_log2(stream.group)
    row_bits = floor_log2(stream.row_columns)
    token = b.argument(TOKEN, "token")
    base = b.calc("MUL", CHANNEL, shard, "base")
    inside = b.calc("SUB", token, base, "inside")
    not_before = b.calc("LT", -1, inside)
    not_after = b.calc("LT", inside, shard)
    own = b.calc("AND", not_before, not_after, "own")
    with b.loop(own):
        bank = b.calc("AND", inside, stream.banks - 1, "bank")
        local = b.calc("SHR", inside, bank_bits, "local")
        group = b.calc("SHR", local, group_bits, "group")
        first = b.calc("SHL", group, group_bits, "first")
        rows = b.calc("MIN", stream.group, linear(stream.total_rows) - first, "rows")
        group_position = b.calc("MUL", first, stream.columns, "position")
        within = b.calc("SUB", local, first, "within")
        for column in range(0, stream.columns, stream.chunk):
            width = min(stream.chunk, stream.columns - column)
            skipped = b.calc("MUL", rows, column, "skipped")
            ahead = b.calc("MUL", within, width, "ahead")
            position = b.calc("ADD", linear(group_position) + skipped, ahead, "position")
            dram_row = b.calc("SHR", position, row_bits, "row")
            start = b.calc("AND", position, stream.row_columns - 1, "column")
            head = b.calc("MIN", linear(stream.row_columns) - start, width, "head")
            target = Address(row_buffer, linear(column * stream.column_bytes))
            b.emit("RD", bank=bank, row=linear(dram_row) + stream.first_row, column=start, count=head, target=target)
            b.emit(
                "RD",
                bank=bank,
                row=linear(dram_row) + stream.first_row + 1,
                column=0,
                count=linear(width) - head,
                target=target + linear(head) * stream.column_bytes,
            )
    return b.take()


def collect_row(
    machine: Machine, stream: WeightStream, row_buffer: ScratchBuffer, result: ScratchTensor
) -> tuple[Item, ...]:
    """Body of the vector task: the row, from the channel that read it, as f32 in ``result`` (contiguous or sharded)."""
    b = Builder()
    token = b.argument(TOKEN, "token")
    # The holder is the number of later channels whose first token is not above this one.
    holder = linear(0)
    if stream.channels > 1:
        total = b.calc("LT", stream.shard(0) - 1, token, "holder")
        for other in range(2, stream.channels):
            total = b.calc("ADD", total, b.calc("LT", other * stream.shard(0) - 1, token), "holder")
        holder = linear(b.calc("SHL", total, floor_log2(machine.scratch.bytes_per_channel), "base"))
    copy = PassBuilder(machine, tuple(extent for extent, _ in result.dims), high=result.elements)
    inner = result.dims[-1][0]
    source_strides = (2,) if len(result.dims) == 1 else (2 * inner, 2)
    row = copy.load(row_buffer, holder, source_strides, "bf16")
    copy.store(row, result.buffer, result.offset, tuple(stride for _, stride in result.dims))
    b.passes(copy.build())
    return b.take()
