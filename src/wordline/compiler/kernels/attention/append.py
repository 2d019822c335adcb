"""The step's K and V go into their pages.

K as columns of one bank, V element by element, since it is stored transposed. Where the same step also reads the
pages, that happens while their rows are open for it.
"""

from __future__ import annotations

from wordline.compiler.integers import floor_log2
from wordline.compiler.kernel.builder import Builder, turn_row
from wordline.compiler.kernel.ir import Address, Item
from wordline.compiler.kernel.scratch import ScratchTensor
from wordline.compiler.kernel.symbols import Linear, linear
from wordline.compiler.kernels.attention.pages import Pages
from wordline.compiler.kernels.attention.shape import BF16_BYTES, AttentionShape


def append(shape: AttentionShape, k: ScratchTensor, v: ScratchTensor) -> tuple[Item, ...]:
    """Body of the channel task that only writes the step's K and V (bf16, every channel) into their pages."""
    b, kv = Builder(), shape.kv
    pages = Pages(b, shape)
    with b.loop(kv.rounds, "round") as round_:
        newest = pages.newest(round_)
        with b.loop(b.calc("LT", -1, newest, "own")):
            head = linear(b.calc("ADD", linear(round_) * kv.groups, pages.group, "head"))
            first = b.calc("MUL", round_, kv.groups * kv.pages_per_channel * kv.spread, "first_entry")
            row = b.load(linear(first) + b.calc("ADD", pages.address(0, newest), 0, "entry"), "row")
            write_key(pages, linear(row), head, k)
            b.extend(turn_row(linear(row) + kv.rows_per_side))
            write_value(pages, linear(row), head, v)
    return b.take()


def append_value(shape: AttentionShape, round_: int, first_row: int, v: ScratchTensor) -> tuple[Item, ...]:
    """Body of the channel task that only writes the step's V of a round, and opens row ``first_row`` of the channel's
    first page afterwards.
    """
    b = Builder()
    pages = Pages(b, shape)
    newest = pages.newest(round_)
    with b.loop(b.calc("LT", -1, newest, "own")):
        row = b.load(pages.address(round_, newest), "row")
        b.extend(turn_row(linear(row) + shape.kv.rows_per_side))
        write_value(pages, linear(row), pages.head(round_), v)
        first = b.load(pages.address(round_, 0), "first")
        b.extend(turn_row(linear(first) + first_row))
    return b.take()


def write_key(pages: Pages, row: Linear, head: Linear, k: ScratchTensor) -> None:
    """The step's K of a KV head into the page at ``row``."""
    b, shape, kv = pages.b, pages.shape, pages.shape.kv
    token = b.calc("AND", pages.position, kv.page_tokens - 1, "token")
    bank = b.calc("AND", token, kv.banks - 1, "bank")
    group = b.calc("SHR", token, floor_log2(kv.banks), "token_group")
    place = b.calc("MUL", group, kv.head_columns, "key_position")
    below = b.calc("SHR", place, floor_log2(kv.row_columns), "key_row")
    column = b.calc("AND", place, kv.row_columns - 1, "key_column")
    source = Address(k.buffer, head * shape.head_bytes + k.offset)
    b.emit("WR", bank=bank, row=row + below, column=column, count=kv.head_columns, source=source)


def write_value(pages: Pages, row: Linear, head: Linear, v: ScratchTensor) -> None:
    """The step's V of a KV head into the page at ``row``."""
    b, shape, kv = pages.b, pages.shape, pages.shape.kv
    token = b.calc("AND", pages.position, kv.page_tokens - 1, "token")
    lane = b.calc("AND", token, kv.lanes - 1, "lane")
    lanes = b.calc("SHL", 1, lane, "lanes")
    column = b.calc("SHR", token, floor_log2(kv.lanes), "value_column")
    source = Address(v.buffer, head * shape.head_bytes + v.offset)
    for part in range(kv.head_dim // kv.banks):
        first = part * kv.token_columns
        with b.loop(kv.banks, "bank") as bank:
            b.emit(
                "WRE",
                bank=bank,
                row=row + kv.rows_per_side + first // kv.row_columns,
                column=linear(column) + first % kv.row_columns,
                source=source + (linear(bank) * BF16_BYTES + part * kv.banks * BF16_BYTES),
                lanes=lanes,
            )
