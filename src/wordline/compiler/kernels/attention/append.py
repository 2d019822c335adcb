"""The step's K and V go into their pages.

K as columns of one bank, V element by element, since it is stored transposed.
"""

from __future__ import annotations

from wordline.compiler.arguments import PAGE_TABLE
from wordline.compiler.kernel.builder import CHANNEL, Builder, turn_row
from wordline.compiler.kernel.ir import Address, Item
from wordline.compiler.kernel.scratch import ScratchTensor
from wordline.compiler.kernel.symbols import linear
from wordline.compiler.kernels.attention.shape import ELEMENT_BYTES, AttentionShape, log2, pages_in_use


def append(shape: AttentionShape, k: ScratchTensor, v: ScratchTensor) -> tuple[Item, ...]:
    """Body of the channel task that writes the step's K and V (bf16, every channel) into their pages."""
    b, kv = Builder(), shape.kv
    position, pages = pages_in_use(b, shape)
    table = b.argument(PAGE_TABLE, "table")
    last = b.calc("SUB", pages, 1, "page")
    local_page = b.calc("SHR", last, log2(kv.channels), "local_page")
    token = b.calc("AND", position, kv.page_tokens - 1, "token")
    bank = b.calc("AND", token, kv.banks - 1, "bank")
    token_group = b.calc("SHR", token, log2(kv.banks), "token_group")
    key_position = b.calc("MUL", token_group, kv.head_columns, "key_position")
    key_row = b.calc("SHR", key_position, log2(kv.row_columns), "key_row")
    key_column = b.calc("AND", key_position, kv.row_columns - 1, "key_column")
    lane = b.calc("AND", token, kv.lanes - 1, "lane")
    lanes = b.calc("SHL", 1, lane, "lanes")
    value_column = b.calc("SHR", token, log2(kv.lanes), "value_column")
    entries = b.calc("ADD", linear(table) + CHANNEL, linear(local_page) * kv.channels, "entries")
    stride = kv.entry(shape.layer, 1) - kv.entry(shape.layer, 0)
    with b.loop(kv.kv_heads, "head") as head:
        holder = b.calc("AND", linear(last) + head, kv.channels - 1, "holder")
        with b.loop(b.calc("EQ", CHANNEL, holder, "own")):
            row = b.load(linear(entries) + linear(head) * stride + kv.entry(shape.layer, 0), "page_row")
            source = Address(k.buffer, linear(head) * shape.head_bytes + k.offset)
            b.emit("WR", bank=bank, row=linear(row) + key_row, column=key_column, count=kv.head_columns, source=source)
            opened: int | None = None
            for part in range(kv.head_dim // kv.banks):
                first = part * kv.token_columns
                value_row = kv.rows_per_side + first // kv.row_columns
                if value_row != opened:
                    b.extend(turn_row(linear(row) + value_row))
                    opened = value_row
                element = Address(
                    v.buffer, linear(head) * shape.head_bytes + v.offset + part * kv.banks * ELEMENT_BYTES
                )
                with b.loop(kv.banks, "bank") as each:
                    b.emit(
                        "WRE",
                        bank=each,
                        row=linear(row) + value_row,
                        column=linear(value_column) + first % kv.row_columns,
                        source=element + linear(each) * ELEMENT_BYTES,
                        lanes=lanes,
                    )
    return b.take()
