"""Decode attention over the paged KV cache: append, scores, softmax, weighted sum of V, one KV head (with its query
heads) at a time.

Channels compute the scores of their own pages (`score`), the vector unit makes them probabilities in place
(`softmax`), the channels multiply them with V (`weigh`), and the vector unit adds the channels' parts and divides by
the sum (`merge`). The work of one KV head on the vector unit overlaps with the next head's on the channels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from wordline.compiler.arguments import PAGE_TABLE, POSITION
from wordline.compiler.kernel.builder import CHANNEL, Builder, turn_row
from wordline.compiler.kernel.ir import Address, Command, Item, command
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, Register, SharedRegister, linear
from wordline.compiler.layout import KVLayout
from wordline.compiler.vector.builder import PassBuilder
from wordline.machines import Machine

COLUMN_BYTES = 32
ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """One layer's attention.

    ``group`` query heads share each KV head; ``window`` limits how far back it sees (None: no limit).
    """

    kv: KVLayout
    layer: int
    group: int
    scale: float
    window: int | None

    @property
    def head_bytes(self) -> int:
        return self.kv.head_dim * ELEMENT_BYTES

    @property
    def page_bytes(self) -> int:
        """Scores of one page for one query head, in one channel."""
        return self.kv.page_tokens * ELEMENT_BYTES

    @property
    def score_bytes(self) -> int:
        """Scores of one query head in one channel, at full context."""
        return self.kv.pages_per_channel * self.page_bytes


def _log2(value: int) -> int:
    return value.bit_length() - 1


def _pages(b: Builder, shape: AttentionShape) -> tuple[Register, Register]:
    """(position, number of pages in use)."""
    position = b.argument(POSITION, "position")
    last = b.calc("SHR", position, _log2(shape.kv.page_tokens), "last_page")
    return position, b.calc("ADD", last, 1, "pages")


def _local_pages(b: Builder, shape: AttentionShape, head: int) -> Register:
    """How many of the head's pages this channel holds: pages p with (p + head) % channels == channel."""
    channels = shape.kv.channels
    _, pages = _pages(b, shape)
    first = b.calc("AND", linear(CHANNEL) - head, channels - 1, "first_page")
    return b.calc("SHR", linear(pages) - first + (channels - 1), _log2(channels), "local_pages")


def _page_row(b: Builder, shape: AttentionShape, head: int, table: Register, local_page: IntLike) -> Register:
    entry = linear(table) + shape.kv.entry(shape.layer, head)
    index = b.calc("ADD", entry + CHANNEL, linear(local_page) * shape.kv.channels, "entry")
    return b.load(index, "page_row")


def _each_page(b: Builder, local_pages: Register, work: Callable[[Register, bool], None]) -> None:
    """``work(page, last)`` for every local page; apart for the last one, so that it need not prepare for another."""
    final = b.calc("SUB", local_pages, 1, "final_page")
    with b.loop(final, "page") as page:
        work(page, False)
    with b.loop(b.calc("MIN", local_pages, 1, "any_page")):
        work(final, True)


def append(shape: AttentionShape, k: ScratchTensor, v: ScratchTensor) -> tuple[Item, ...]:
    """Body of the channel task that writes the step's K and V (bf16, every channel) into their pages."""
    b, kv = Builder(), shape.kv
    position, pages = _pages(b, shape)
    table = b.argument(PAGE_TABLE, "table")
    last = b.calc("SUB", pages, 1, "page")
    local_page = b.calc("SHR", last, _log2(kv.channels), "local_page")
    token = b.calc("AND", position, kv.page_tokens - 1, "token")
    bank = b.calc("AND", token, kv.banks - 1, "bank")
    token_group = b.calc("SHR", token, _log2(kv.banks), "token_group")
    key_position = b.calc("MUL", token_group, kv.head_columns, "key_position")
    key_row = b.calc("SHR", key_position, _log2(kv.row_columns), "key_row")
    key_column = b.calc("AND", key_position, kv.row_columns - 1, "key_column")
    lane = b.calc("AND", token, kv.lanes - 1, "lane")
    lanes = b.calc("SHL", 1, lane, "lanes")
    value_column = b.calc("SHR", token, _log2(kv.lanes), "value_column")
    for head in range(kv.kv_heads):
        holder = b.calc("AND", linear(last) + head, kv.channels - 1, "holder")
        own = b.calc("EQ", CHANNEL, holder, "own")
        with b.loop(own):
            row = _page_row(b, shape, head, table, local_page)
            source = Address(k.buffer, linear(k.offset + head * shape.head_bytes))
            b.emit("WR", bank=bank, row=linear(row) + key_row, column=key_column, count=kv.head_columns, source=source)
            opened: int | None = None
            for part in range(kv.head_dim // kv.banks):
                first = part * kv.token_columns
                value_row = kv.rows_per_side + first // kv.row_columns
                if value_row != opened:
                    b.extend(turn_row(linear(row) + value_row))
                    opened = value_row
                element = Address(
                    v.buffer, linear(v.offset + head * shape.head_bytes + part * kv.banks * ELEMENT_BYTES)
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


def score(
    machine: Machine, shape: AttentionShape, head: int, q: ScratchTensor, scores: ScratchBuffer, zeros: ScratchBuffer
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body): q . K of every token in this channel's pages, for the query heads of KV head ``head``.

    ``scores``: per query head of the group ``score_bytes``, tokens of a page in order, bf16.
    """
    b, kv = Builder(), shape.kv
    accumulators = machine.bank_unit.accumulators
    local_pages = _local_pages(b, shape, head)
    table = b.argument(PAGE_TABLE, "table")
    token_groups = kv.page_tokens // kv.banks
    pairs = [(query, tokens) for query in range(shape.group) for tokens in range(token_groups)]
    visits = [pairs[first : first + accumulators] for first in range(0, len(pairs), accumulators)]
    heads_a_fill = max(1, machine.buffer.columns // kv.head_columns)
    b.extend(turn_row(_page_row(b, shape, head, table, 0)))
    b.emit("WRMAC16", accumulator=0, count=len(visits[0]), source=Address(zeros))
    prologue = b.take()

    def fill(query: int) -> None:
        count = min(heads_a_fill, shape.group - query)
        source = Address(q.buffer, linear(q.offset + (head * shape.group + query) * shape.head_bytes))
        b.emit("WRGB", buffer=0, count=count * kv.head_columns, source=source)

    resident = shape.group <= heads_a_fill
    if resident:
        fill(0)

    def work(page: Register, last: bool) -> None:
        row = _page_row(b, shape, head, table, page)
        filled = -1
        for index, visit in enumerate(visits):
            commands: list[Command] = []
            for accumulator, (query, tokens) in enumerate(visit):
                if not resident and query // heads_a_fill != filled:
                    b.rolled(commands)
                    commands = []
                    filled = query // heads_a_fill
                    fill(filled * heads_a_fill)
                first = tokens * kv.head_columns
                commands.append(
                    command(
                        "MAC16",
                        row=linear(row) + first // kv.row_columns,
                        column=first % kv.row_columns,
                        buffer=(query % heads_a_fill) * kv.head_columns,
                        accumulator=accumulator,
                        count=kv.head_columns,
                    )
                )
            b.rolled(commands)
            done = index == len(visits) - 1
            if done and not last:
                b.extend(turn_row(_page_row(b, shape, head, table, linear(page) + 1)))
            _read_scores(b, shape, visit, scores, page)
            if not (done and last):
                following = visits[0 if done else index + 1]
                b.emit("WRMAC16", accumulator=0, count=len(following), source=Address(zeros))

    _each_page(b, local_pages, work)
    return prologue, b.take()


def _read_scores(
    b: Builder, shape: AttentionShape, visit: list[tuple[int, int]], scores: ScratchBuffer, page: Register
) -> None:
    first = 0
    while first < len(visit):
        query, tokens = visit[first]
        count = sum(1 for other, _ in visit[first:] if other == query)
        target = linear(query * shape.score_bytes + tokens * COLUMN_BYTES) + linear(page) * shape.page_bytes
        b.emit("RDMAC16", accumulator=first, count=count, target=Address(scores, target))
        first += count


def _token_shape(b: Builder, shape: AttentionShape) -> tuple[Register, tuple[IntLike, IntLike, IntLike]]:
    """(position, pass extents over all tokens of the pages in use): (pages a channel, channels, tokens of a page)."""
    kv = shape.kv
    position, pages = _pages(b, shape)
    turns = b.calc("SHR", linear(pages) + (kv.channels - 1), _log2(kv.channels), "turns")
    channels = b.calc("MIN", pages, kv.channels, "channels")
    return position, (turns, channels, kv.page_tokens)


def softmax(
    machine: Machine, shape: AttentionShape, head: int, scores: ScratchBuffer, sums: list[SharedRegister]
) -> tuple[Item, ...]:
    """Body of the vector task: scores to unnormalised probabilities exp(scale * (s - max)) in place (bf16), their
    sums to ``sums`` (one a query head).

    The sum is of the rounded probabilities, so that they and their sum agree. Tokens outside the window or after the
    position become 0."""
    b, kv = Builder(), shape.kv
    position, extents = _token_shape(b, shape)
    high = linear(position) + 1
    low = linear(0)
    if shape.window is not None:
        outside = b.calc("SUB", position, shape.window - 1, "outside")
        negative = b.calc("LT", outside, 0, "negative")
        inside = b.calc("SUB", 1, negative, "inside")
        low = linear(b.calc("MUL", outside, inside, "low"))
    strides = (shape.page_bytes, machine.scratch.bytes_per_channel, ELEMENT_BYTES)
    channel_offset = (head % kv.channels) * machine.scratch.bytes_per_channel
    for query, total in enumerate(sums):
        offset = channel_offset + query * shape.score_bytes
        maximum = SharedRegister(f"{total.name}_max")
        largest = PassBuilder(machine, extents, low=low, high=high)
        largest.reduce("max", largest.load(scores, offset, strides, "bf16"), maximum)
        weights = PassBuilder(machine, extents, low=low, high=high)
        shifted = weights.load(scores, offset, strides, "bf16") - weights.scalar(maximum)
        probability = weights.apply("round_bf16", weights.exp(shifted * weights.scalar(shape.scale)))
        weights.store(probability, scores, offset, strides, "bf16")
        weights.reduce("sum", probability, total)
        b.passes(largest.build(), weights.build())
    return b.take()


def weigh(
    machine: Machine,
    shape: AttentionShape,
    head: int,
    scores: ScratchBuffer,
    partial: ScratchBuffer,
    zeros: ScratchBuffer,
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body).

    This channel's part of P V for the query heads of KV head ``head``: bf16 [group, head_dim] in ``partial``.
    """
    b, kv = Builder(), shape.kv
    parts = kv.head_dim // kv.banks
    at_once = min(machine.bank_unit.accumulators // parts, machine.buffer.columns // kv.token_columns, shape.group)
    if at_once == 0:
        return _weigh_split(machine, shape, head, scores, partial, zeros)
    local_pages = _local_pages(b, shape, head)
    table = b.argument(PAGE_TABLE, "table")
    b.extend(turn_row(linear(_page_row(b, shape, head, table, 0)) + kv.rows_per_side))
    b.emit("WRMAC16", accumulator=0, count=at_once * parts, source=Address(zeros))
    prologue = b.take()
    for first in range(0, shape.group, at_once):
        queries = range(first, min(first + at_once, shape.group))
        if first:
            b.extend(turn_row(linear(_page_row(b, shape, head, table, 0)) + kv.rows_per_side))
            b.emit("WRMAC16", accumulator=0, count=len(queries) * parts, source=Address(zeros))
        _each_page(b, local_pages, functools.partial(_weigh_page, b, shape, head, scores, table, queries))
        b.emit(
            "RDMAC16",
            accumulator=0,
            count=len(queries) * parts,
            target=Address(partial, linear(first * shape.head_bytes)),
        )
    return prologue, b.take()


def _weigh_page(
    b: Builder,
    shape: AttentionShape,
    head: int,
    scores: ScratchBuffer,
    table: Register,
    queries: range,
    page: Register,
    last: bool,
) -> None:
    """One page of P V for ``queries``: its row is open; the next page's is opened after it."""
    kv = shape.kv
    row = _page_row(b, shape, head, table, page)
    for slot, query in enumerate(queries):
        source = Address(scores, linear(query * shape.score_bytes) + linear(page) * shape.page_bytes)
        b.emit("WRGB", buffer=slot * kv.token_columns, count=kv.token_columns, source=source)
    parts = kv.head_dim // kv.banks
    b.rolled(
        [
            _value_burst(kv, row, part, slot, slot * parts + part)
            for part in range(parts)
            for slot in range(len(queries))
        ]
    )
    if not last:
        b.extend(turn_row(linear(_page_row(b, shape, head, table, linear(page) + 1)) + kv.rows_per_side))


def _value_burst(kv: KVLayout, row: Register, part: int, slot: int, accumulator: int) -> Command:
    first = part * kv.token_columns
    return command(
        "MAC16",
        row=linear(row) + kv.rows_per_side + first // kv.row_columns,
        column=first % kv.row_columns,
        buffer=slot * kv.token_columns,
        accumulator=accumulator,
        count=kv.token_columns,
    )


def _weigh_split(
    machine: Machine,
    shape: AttentionShape,
    head: int,
    scores: ScratchBuffer,
    partial: ScratchBuffer,
    zeros: ScratchBuffer,
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """`weigh` where one query head's output needs more accumulators than there are.

    The head's dimensions are done in turns.
    """
    b, kv = Builder(), shape.kv
    parts, accumulators = kv.head_dim // kv.banks, machine.bank_unit.accumulators
    local_pages = _local_pages(b, shape, head)
    table = b.argument(PAGE_TABLE, "table")
    prologue = b.take()
    for query in range(shape.group):
        for first in range(0, parts, accumulators):
            count = min(accumulators, parts - first)
            b.emit("WRMAC16", accumulator=0, count=count, source=Address(zeros))
            with b.loop(local_pages, "page") as page:
                row = _page_row(b, shape, head, table, page)
                b.extend(turn_row(linear(row) + kv.rows_per_side + first * kv.token_columns // kv.row_columns))
                source = Address(scores, linear(query * shape.score_bytes) + linear(page) * shape.page_bytes)
                b.emit("WRGB", buffer=0, count=kv.token_columns, source=source)
                b.rolled([_value_burst(kv, row, first + i, 0, i) for i in range(count)])
            target = linear(query * shape.head_bytes + first * COLUMN_BYTES)
            b.emit("RDMAC16", accumulator=0, count=count, target=Address(partial, target))
    return prologue, b.take()


def merge(
    machine: Machine,
    shape: AttentionShape,
    head: int,
    partial: ScratchBuffer,
    sums: list[SharedRegister],
    out: ScratchTensor,
) -> tuple[Item, ...]:
    """Body of the vector task: the channels' parts added and divided by the sum, bf16 to every channel at the head's
    place in ``out``.

    Channels without pages contribute zeros, so all are added, as many a pass as it has operands.
    """
    b, kv = Builder(), shape.kv
    channel_bytes, operands = machine.scratch.bytes_per_channel, machine.vector_unit.max_operands
    for query, total in enumerate(sums):
        parts = [channel * channel_bytes + query * shape.head_bytes for channel in range(kv.channels)]
        # A sum of parts that do not fit one pass is kept as f32 behind the bf16 parts.
        keep = shape.group * shape.head_bytes + query * kv.head_dim * 4
        carried = False
        while parts:
            room = operands - carried
            now, parts = parts[:room], parts[room:]
            step = PassBuilder(machine, (kv.head_dim,))
            values = [step.load(partial, keep, (4,))] if carried else []
            values += [step.load(partial, offset, (ELEMENT_BYTES,), "bf16") for offset in now]
            value = values[0]
            for other in values[1:]:
                value = value + other
            if parts:
                step.store(value, partial, keep, (4,))
                carried = True
            else:
                place = out.offset + (head * shape.group + query) * shape.head_bytes
                result = value * step.recip(step.scalar(total))
                step.store(result, out.buffer, place, (ELEMENT_BYTES,), "bf16", every_channel=True)
            b.passes(step.build())
    return b.take()


def partial_bytes(shape: AttentionShape) -> int:
    """Bytes a channel of the ``partial`` buffer of one KV head."""
    return shape.group * (shape.head_bytes + (shape.kv.head_dim * 4 if shape.kv.channels > 4 else 0))
