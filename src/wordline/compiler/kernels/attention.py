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
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchDType, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, Linear, Register, SharedRegister, linear
from wordline.compiler.layout import KVLayout
from wordline.compiler.vector.builder import PassBuilder, PassValue
from wordline.machines import Machine

COLUMN_BYTES = 32
ELEMENT_BYTES = 2
MIN_BATCHES = 4
"""Batches of KV heads a layer has at least, where it has the heads: their bank and vector work overlap."""
MAX_SUMS = 16
"""Softmax sums of one batch: they and the maxima of two batches stay within the shared registers."""


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


def head_batches(machine: Machine, shape: AttentionShape) -> list[range]:
    """KV heads whose kernels share a task, in order.

    One head a task overlaps best with the vector unit; with many heads the program would be long, so up to a quarter
    of them share a loop, as long as their scores take little scratch.
    """
    count = 1
    while (
        2 * count <= shape.kv.kv_heads // MIN_BATCHES
        and 2 * count * shape.group <= MAX_SUMS
        and 2 * count * shape.group * shape.score_bytes * MIN_BATCHES <= machine.scratch.bytes_per_channel
    ):
        count *= 2
    return [range(at, min(at + count, shape.kv.kv_heads)) for at in range(0, shape.kv.kv_heads, count)]


def merges_all_channels(machine: Machine, shape: AttentionShape) -> bool:
    """One pass adds the parts of all channels, so every channel delivers one, zeros if it holds no page."""
    return shape.kv.channels <= machine.vector_unit.max_operands


@dataclass(frozen=True, slots=True)
class _Head:
    """A KV head in a channel's stream: its number, its place in the batch, where its page-table entries begin (those of
    this channel), how many of its pages are here."""

    number: Linear
    index: Linear
    table: Register
    pages: Register

    def row(self, b: Builder, shape: AttentionShape, page: IntLike) -> Register:
        """First DRAM row of a local page."""
        return b.load(linear(self.table) + linear(page) * shape.kv.channels, "page_row")


def _head(b: Builder, shape: AttentionShape, number: Linear, index: Linear) -> _Head:
    kv = shape.kv
    _, pages = _pages(b, shape)
    # Page p is on channel (p + head) % channels.
    first = b.calc("AND", linear(CHANNEL) - number, kv.channels - 1, "first_page")
    local = b.calc("SHR", linear(pages) - first + (kv.channels - 1), _log2(kv.channels), "local_pages")
    base = b.argument(PAGE_TABLE, "table")
    stride = kv.entry(shape.layer, 1) - kv.entry(shape.layer, 0)
    table = b.calc("ADD", linear(base) + CHANNEL, number * stride + kv.entry(shape.layer, 0), "entries")
    return _Head(number, index, table, local)


def _each_page(b: Builder, shape: AttentionShape, head: _Head, work: Callable[[Register, bool], None]) -> None:
    """``work(page, last)`` for every local page; apart for the last one, so that it need not prepare for another."""
    final = b.calc("SUB", head.pages, 1, "final_page")
    if shape.kv.pages_per_channel > 1:
        with b.loop(final, "page") as page:
            work(page, False)
    with b.loop(b.calc("MIN", head.pages, 1, "any_page")):
        work(final, True)


def _each_head(
    b: Builder,
    shape: AttentionShape,
    heads: range,
    prepare: Callable[[_Head], None],
    work: Callable[[_Head], None],
    idle: bool,
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body): ``prepare`` and ``work`` for each head.

    A single head is prepared in the prologue, ahead of the data; several are a loop. ``idle``: heads without a page in
    this channel are worked on as well.
    """
    if len(heads) == 1:
        head = _head(b, shape, linear(heads.start), linear(0))
        prepare(head)
        prologue = b.take()
        if idle:
            work(head)
        else:
            with b.loop(b.calc("MIN", head.pages, 1, "any_page")):
                work(head)
        return prologue, b.take()
    with b.loop(len(heads), "head") as index:
        head = _head(b, shape, linear(index) + heads.start, linear(index))
        with b.loop(1 if idle else b.calc("MIN", head.pages, 1, "any_page")):
            prepare(head)
            work(head)
    return (), b.take()


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


def score(
    machine: Machine,
    shape: AttentionShape,
    heads: range,
    q: ScratchTensor,
    scores: ScratchBuffer,
    zeros: ScratchBuffer,
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body): q . K of every token in this channel's pages, for the query heads of the KV heads ``heads``.

    ``scores``: per KV head and query head of its group ``score_bytes``, tokens of a page in order, bf16.
    """
    b, kv = Builder(), shape.kv
    accumulators = machine.bank_unit.accumulators
    token_groups = kv.page_tokens // kv.banks
    pairs = [(query, tokens) for query in range(shape.group) for tokens in range(token_groups)]
    visits = [pairs[first : first + accumulators] for first in range(0, len(pairs), accumulators)]
    heads_a_fill = max(1, machine.buffer.columns // kv.head_columns)
    resident = shape.group <= heads_a_fill

    def fill(head: _Head, query: int) -> None:
        count = min(heads_a_fill, shape.group - query)
        first = q.offset + query * shape.head_bytes
        source = Address(q.buffer, head.number * (shape.group * shape.head_bytes) + first)
        b.emit("WRGB", buffer=0, count=count * kv.head_columns, source=source)

    def prepare(head: _Head) -> None:
        b.extend(turn_row(head.row(b, shape, 0)))
        b.emit("WRMAC16", accumulator=0, count=len(visits[0]), source=Address(zeros))

    def work(head: _Head) -> None:
        if resident:
            fill(head, 0)
        _each_page(b, shape, head, lambda page, last: one_page(head, page, last))

    def one_page(head: _Head, page: Register, last: bool) -> None:
        row = head.row(b, shape, page)
        filled = -1
        for index, visit in enumerate(visits):
            commands: list[Command] = []
            for accumulator, (query, tokens) in enumerate(visit):
                if not resident and query // heads_a_fill != filled:
                    b.rolled(commands)
                    commands = []
                    filled = query // heads_a_fill
                    fill(head, filled * heads_a_fill)
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
                b.extend(turn_row(head.row(b, shape, linear(page) + 1)))
            target = linear(page) * shape.page_bytes + head.index * (shape.group * shape.score_bytes)
            _read_scores(b, shape, visit, Address(scores, target))
            if not (done and last):
                following = visits[0 if done else index + 1]
                b.emit("WRMAC16", accumulator=0, count=len(following), source=Address(zeros))

    return _each_head(b, shape, heads, prepare, work, idle=True)


def _read_scores(b: Builder, shape: AttentionShape, visit: list[tuple[int, int]], target: Address) -> None:
    first = 0
    while first < len(visit):
        query, tokens = visit[first]
        count = sum(1 for other, _ in visit[first:] if other == query)
        place = target + (query * shape.score_bytes + tokens * COLUMN_BYTES)
        b.emit("RDMAC16", accumulator=first, count=count, target=place)
        first += count


def _token_shape(b: Builder, shape: AttentionShape) -> tuple[Register, tuple[IntLike, IntLike, IntLike]]:
    """(position, pass extents over all tokens of the pages in use): (pages a channel, channels, tokens of a page)."""
    kv = shape.kv
    position, pages = _pages(b, shape)
    turns = b.calc("SHR", linear(pages) + (kv.channels - 1), _log2(kv.channels), "turns")
    channels = b.calc("MIN", pages, kv.channels, "channels")
    return position, (turns, channels, kv.page_tokens)


def softmax(
    machine: Machine, shape: AttentionShape, heads: range, scores: ScratchBuffer, sums: list[list[SharedRegister]]
) -> tuple[Item, ...]:
    """Body of the vector task: scores to unnormalised probabilities exp(scale * (s - max)) in place (bf16).

    Their sums go to ``sums``, one a KV head and query head. A sum is of the rounded probabilities, so that they and
    their sum agree. Tokens outside the window or after the position become 0.
    """
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
    for index, head in enumerate(heads):
        channel_offset = (head % kv.channels) * machine.scratch.bytes_per_channel
        for query, total in enumerate(sums[index]):
            offset = channel_offset + (index * shape.group + query) * shape.score_bytes
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
    heads: range,
    scores: ScratchBuffer,
    partial: ScratchBuffer,
    zeros: ScratchBuffer,
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body).

    This channel's part of P V for the query heads of the KV heads ``heads``: bf16 [heads, group, head_dim] in
    ``partial``.
    """
    b, kv = Builder(), shape.kv
    parts = kv.head_dim // kv.banks
    turns = _weigh_turns(machine, shape)

    def prepare(head: _Head) -> None:
        start(head, turns[0])

    def start(head: _Head, turn: _Turn) -> None:
        row = kv.rows_per_side + turn.parts.start * kv.token_columns // kv.row_columns
        b.extend(turn_row(linear(head.row(b, shape, 0)) + row))
        b.emit("WRMAC16", accumulator=0, count=turn.accumulators, source=Address(zeros))

    def work(head: _Head) -> None:
        for number, turn in enumerate(turns):
            if number:
                start(head, turn)
            _each_page(b, shape, head, functools.partial(_weigh_page, b, shape, head, scores, turn))
            target = head.index * (shape.group * shape.head_bytes) + turn.queries.start * shape.head_bytes
            place = Address(partial, target + turn.parts.start * COLUMN_BYTES)
            b.emit("RDMAC16", accumulator=0, count=turn.accumulators, target=place)

    assert all(len(turn.queries) == 1 or len(turn.parts) == parts for turn in turns)
    return _each_head(b, shape, heads, prepare, work, idle=merges_all_channels(machine, shape))


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one run over the pages computes: query heads of the group, and which 16-dimension parts of the output."""

    queries: range
    parts: range

    @property
    def accumulators(self) -> int:
        return len(self.queries) * len(self.parts)


def _weigh_turns(machine: Machine, shape: AttentionShape) -> list[_Turn]:
    """As many query heads at once as buffer and accumulators hold; a head that needs more than all is cut by parts."""
    kv = shape.kv
    parts, accumulators = kv.head_dim // kv.banks, machine.bank_unit.accumulators
    at_once = min(accumulators // parts, machine.buffer.columns // kv.token_columns, shape.group)
    if at_once:
        return [
            _Turn(range(first, min(first + at_once, shape.group)), range(parts))
            for first in range(0, shape.group, at_once)
        ]
    return [
        _Turn(range(query, query + 1), range(first, min(first + accumulators, parts)))
        for query in range(shape.group)
        for first in range(0, parts, accumulators)
    ]


def _weigh_page(
    b: Builder, shape: AttentionShape, head: _Head, scores: ScratchBuffer, turn: _Turn, page: Register, last: bool
) -> None:
    """One page of P V: its row is open; the next page's is opened after it."""
    kv = shape.kv
    row = head.row(b, shape, page)
    for slot, query in enumerate(turn.queries):
        place = linear(page) * shape.page_bytes + head.index * (shape.group * shape.score_bytes)
        source = Address(scores, place + query * shape.score_bytes)
        b.emit("WRGB", buffer=slot * kv.token_columns, count=kv.token_columns, source=source)
    commands: list[Command] = []
    for number, part in enumerate(turn.parts):
        first = part * kv.token_columns
        for slot in range(len(turn.queries)):
            commands.append(
                command(
                    "MAC16",
                    row=linear(row) + kv.rows_per_side + first // kv.row_columns,
                    column=first % kv.row_columns,
                    buffer=slot * kv.token_columns,
                    accumulator=slot * len(turn.parts) + number,
                    count=kv.token_columns,
                )
            )
    b.rolled(commands)
    if not last:
        start = kv.rows_per_side + turn.parts.start * kv.token_columns // kv.row_columns
        b.extend(turn_row(linear(head.row(b, shape, linear(page) + 1)) + start))


def merge(
    machine: Machine,
    shape: AttentionShape,
    heads: range,
    partial: ScratchBuffer,
    sums: list[list[SharedRegister]],
    out: ScratchTensor,
) -> tuple[Item, ...]:
    """Body of the vector task: the channels' parts added and divided by the sum, bf16 to every channel in ``out``.

    With few channels one pass adds all. Otherwise only the channels that hold a page are added, as many a pass as it
    has operands, onto a float32 vector behind the parts.
    """
    b, kv = Builder(), shape.kv
    all_at_once = merges_all_channels(machine, shape)
    channel_bytes = machine.scratch.bytes_per_channel
    more = None if all_at_once else _token_shape(b, shape)[1][1]
    group_bytes = shape.group * shape.head_bytes
    for index, head in enumerate(heads):
        keep = len(heads) * group_bytes + index * shape.group * kv.head_dim * 4
        if more is not None:
            first = (head % kv.channels) * channel_bytes + index * group_bytes
            _accumulate(machine, b, shape, partial, first, keep, more)
        for query, total in enumerate(sums[index]):
            place = out.offset + (head * shape.group + query) * shape.head_bytes
            offset = index * group_bytes + query * shape.head_bytes
            parts: list[Part]
            if more is None:
                parts = [(partial, channel * channel_bytes + offset, "bf16") for channel in range(kv.channels)]
            else:
                parts = [(partial, keep + query * kv.head_dim * 4, "f32")]
            _finish(machine, b, shape, parts, total, out, place)
    return b.take()


Part = tuple[ScratchBuffer, IntLike, ScratchDType]


def _load(step: PassBuilder, part: Part) -> PassValue:
    buffer, offset, dtype = part
    return step.load(buffer, offset, (ELEMENT_BYTES if dtype == "bf16" else 4,), dtype)


def _accumulate(
    machine: Machine,
    b: Builder,
    shape: AttentionShape,
    partial: ScratchBuffer,
    first: int,
    keep: int,
    channels: IntLike,
) -> None:
    """Sum of a KV head's parts over ``channels`` channels, from the one at ``first`` on (linear addresses wrap).

    The sum, for all query heads of the group, goes to ``keep`` as float32.
    """
    shift = _log2(machine.scratch.bytes_per_channel)
    at_once = machine.vector_unit.max_operands - 1
    kept: Part = (partial, keep, "f32")

    def add(parts: list[Part]) -> None:
        step = PassBuilder(machine, (shape.group * shape.kv.head_dim,))
        value = _load(step, parts[0])
        for part in parts[1:]:
            value = value + _load(step, part)
        step.store(value, partial, keep, (4,))
        b.passes(step.build())

    def part(channel: IntLike) -> Part:
        return partial, linear(b.calc("SHL", channel, shift, "channel")) + first, "bf16"

    add([(partial, first, "bf16")])
    others = b.calc("SUB", channels, 1, "others")
    turns = b.calc("SHR", b.calc("MUL", others, _reciprocal(at_once)), RECIPROCAL_BITS, "turns")
    with b.loop(turns, "turn") as turn:
        add([kept, *(part(linear(turn) * at_once + 1 + i) for i in range(at_once))])
    done = b.calc("MUL", turns, at_once, "done")
    with b.loop(linear(others) - done, "rest") as rest:
        add([kept, part(linear(done) + rest + 1)])


RECIPROCAL_BITS = 12
"""Quotients of numbers of channels (below 2^6) by up to 2^6 are exact with this many bits of reciprocal."""


def _reciprocal(divisor: int) -> int:
    return -(-(1 << RECIPROCAL_BITS) // divisor)


def _finish(
    machine: Machine,
    b: Builder,
    shape: AttentionShape,
    parts: list[Part],
    total: SharedRegister,
    out: ScratchTensor,
    place: int,
) -> None:
    """The sum of ``parts`` over the sum of the probabilities, to every channel."""
    step = PassBuilder(machine, (shape.kv.head_dim,))
    value = _load(step, parts[0])
    for part in parts[1:]:
        value = value + _load(step, part)
    scaled = value * step.recip(step.scalar(total))
    step.store(scaled, out.buffer, place, (ELEMENT_BYTES,), "bf16", every_channel=True)
    b.passes(step.build())


def partial_bytes(machine: Machine, shape: AttentionShape, heads: range) -> int:
    """Bytes a channel of the ``partial`` buffer of a batch of KV heads."""
    kept = 0 if merges_all_channels(machine, shape) else shape.kv.head_dim * 4
    return len(heads) * shape.group * (shape.head_bytes + kept)
