"""The vector unit's part of attention: softmax over the scores in place, and the sum of the channels' parts."""

from __future__ import annotations

from collections.abc import Iterator

from wordline.compiler.choices import WHOLE, Cuts
from wordline.compiler.integers import floor_log2
from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.ir import Item
from wordline.compiler.kernel.scratch import ELEMENT_BYTES, ScratchBuffer, ScratchDType, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, Linear, SharedRegister, linear
from wordline.compiler.kernels.attention.pages import Stretch
from wordline.compiler.kernels.attention.shape import (
    BF16_BYTES,
    AttentionShape,
    bound,
    merges_all_channels,
    pages_in_use,
    turns_in_use,
)
from wordline.compiler.vector.builder import PassBuilder, PassValue
from wordline.machines import Machine

F32_BYTES = ELEMENT_BYTES["f32"]
Registers = list[list[SharedRegister]]
"""Shared registers of a round, one a channel group and query head."""


class _Tokens:
    """The tokens of one part of the pages: extents of passes, offsets of their scores, which are valid."""

    def __init__(self, machine: Machine, b: Builder, shape: AttentionShape, cuts: Cuts, part: int) -> None:
        self.machine, self.b, self.shape = machine, b, shape
        kv = shape.kv
        position, pages = pages_in_use(b, shape)
        turns = turns_in_use(b, shape, pages)
        start, self.turns = bound(b, turns, cuts, part), bound(b, turns, cuts, part + 1)
        self.start = linear(start)
        if start != 0:
            self.turns = b.calc("SUB", self.turns, start, "turns")
        channels: IntLike = 1 if kv.spread == 1 else b.calc("MIN", pages, kv.spread, "channels")
        self.extents = (self.turns, channels, kv.page_tokens)
        self.strides = (
            shape.page_bytes,
            0 if kv.spread == 1 else kv.groups * machine.scratch.bytes_per_channel,
            BF16_BYTES,
        )
        self.high = linear(position) + 1
        self.low = linear(0)
        if shape.window is not None:
            outside = b.calc("SUB", position, shape.window - 1, "outside")
            inside = b.calc("SUB", 1, b.calc("LT", outside, 0, "negative"), "inside")
            self.low = linear(b.calc("MUL", outside, inside, "low"))
        if start != 0:
            before = b.calc("MUL", start, kv.spread * kv.page_tokens, "before")
            self.high, self.low = self.high - before, self.low - before

    def heads(self, round_: int, one: int | None = None) -> Iterator[tuple[int, int, Linear]]:
        """(channel group, query head of the group, offset of its scores) of every query head of a round, or of one of
        each KV head.
        """
        kv = self.shape.kv
        for group in range(kv.groups):
            channel = (round_ * kv.groups + group) % kv.channels
            for query in self.shape.queries(one):
                place = channel * self.machine.scratch.bytes_per_channel + query * self.shape.score_bytes
                yield group, query, self.start * self.shape.page_bytes + place

    def new_pass(self) -> PassBuilder:
        return PassBuilder(self.machine, self.extents, low=self.low, high=self.high)


def maxima(
    machine: Machine,
    shape: AttentionShape,
    round_: int,
    cuts: Cuts,
    part: int,
    scores: ScratchBuffer,
    largest: Registers,
) -> tuple[Item, ...]:
    """Body of the vector task that finds each query head's largest score, up to a part of the pages."""
    b = Builder()
    tokens = _Tokens(machine, b, shape, cuts, part)
    with b.loop(1 if part == 0 else b.calc("MIN", tokens.turns, 1, "any")):
        heads = list(tokens.heads(round_))
        at_once = min(machine.vector_unit.max_reductions, machine.vector_unit.max_operands)
        for start in range(0, len(heads), at_once):
            step = tokens.new_pass()
            for group, query, offset in heads[start : start + at_once]:
                register = largest[group][query]
                value = step.load(scores, offset, tokens.strides, "bf16")
                step.reduce("max", step.apply("max", value, step.scalar(register)) if part else value, register)
            b.passes(step.build())
    return b.take()


def exponentials(
    machine: Machine,
    shape: AttentionShape,
    stretch: Stretch,
    scores: ScratchBuffer,
    largest: Registers,
    sums: Registers,
) -> tuple[Item, ...]:
    """Body of the vector task: scores of a part of the pages to unnormalised probabilities exp(scale * (s - max)) in
    place (bf16), of one query head of each KV head or of all.

    A sum is of the rounded probabilities, so that they and their sum agree. Tokens outside the window or after the
    position become 0. The very first query head is done whole, with the first part: the register of its maximum then
    serves the sums of the other heads' parts.
    """
    b, round_, cuts, part, one = Builder(), stretch.round, stretch.cuts, stretch.part, stretch.query
    tokens = _Tokens(machine, b, shape, cuts, part)
    spare = largest[0][0]

    def exponential(tokens: _Tokens, offset: Linear, maximum: SharedRegister, total: SharedRegister) -> None:
        step = tokens.new_pass()
        shifted = step.load(scores, offset, tokens.strides, "bf16") - step.scalar(maximum)
        probability = step.apply("round_bf16", step.exp(shifted * step.scalar(shape.scale)))
        step.store(probability, scores, offset, tokens.strides, "bf16")
        step.reduce("sum", probability, total)
        b.passes(step.build())

    if part == 0 and cuts != WHOLE and not one:
        whole = _Tokens(machine, b, shape, WHOLE, 0)
        _, _, offset = next(whole.heads(round_))
        exponential(whole, offset, spare, sums[0][0])
    with b.loop(1 if part == 0 else b.calc("MIN", tokens.turns, 1, "any")):
        for group, query, offset in tokens.heads(round_, one):
            total = sums[group][query]
            if part == 0 and (cuts == WHOLE or largest[group][query] != spare):
                exponential(tokens, offset, largest[group][query], total)
            elif largest[group][query] != spare:
                exponential(tokens, offset, largest[group][query], spare)
                add = PassBuilder(machine, (1,))
                add.reduce("sum", add.scalar(total) + add.scalar(spare), total)
                b.passes(add.build())
    return b.take()


def reciprocals(machine: Machine, sums: Registers, place: ScratchBuffer) -> tuple[Item, ...]:
    """Body of the vector task that replaces the sums by their reciprocals, all of them in one pass over ``place``.

    ``place``: float32, one a sum, on channel 0.
    """
    b = Builder()
    totals = [total for heads in sums for total in heads]
    for index, total in enumerate(totals):
        put = PassBuilder(machine, (1,))
        put.store(put.scalar(total), place, index * F32_BYTES, (F32_BYTES,))
        b.passes(put.build())
    step = PassBuilder(machine, (len(totals),))
    step.store(step.recip(step.load(place, 0, (F32_BYTES,))), place, 0, (F32_BYTES,))
    b.passes(step.build())
    for index, total in enumerate(totals):
        get = PassBuilder(machine, (1,))
        get.reduce("max", get.load(place, index * F32_BYTES, (F32_BYTES,)), total)
        b.passes(get.build())
    return b.take()


def merge(
    machine: Machine,
    shape: AttentionShape,
    round_: int,
    partial: ScratchBuffer,
    sums: Registers,
    out: ScratchTensor,
    one: int | None,
) -> tuple[Item, ...]:
    """Body of the vector task: the channels' parts added and divided by the sum, bf16 to every channel in ``out``.

    Of one query head of each KV head only where one pass adds all channels.

    With few channels one pass adds all. Otherwise only the channels that hold a page are added, as many a pass as it
    has operands, onto a float32 vector behind the parts.
    ``sums``: their reciprocals.
    """
    b, kv = Builder(), shape.kv
    channel_bytes = machine.scratch.bytes_per_channel
    channels: IntLike | None = None
    if not merges_all_channels(machine, shape):
        channels = b.calc("MIN", pages_in_use(b, shape)[1], kv.spread, "channels")
    for group in range(kv.groups):
        head = round_ * kv.groups + group
        first = (head % kv.channels) * channel_bytes
        keep = first + shape.group * shape.head_bytes
        if channels is not None:
            _accumulate(machine, b, shape, partial, first, keep, channels)
        for query in shape.queries(one):
            total = sums[group][query]
            parts: list[Part] = [(partial, keep + query * kv.head_dim * F32_BYTES, "f32")]
            if channels is None:
                places = [(head + member * kv.groups) % kv.channels for member in range(kv.spread)]
                parts = [(partial, place * channel_bytes + query * shape.head_bytes, "bf16") for place in places]
            place = out.offset + (head * shape.group + query) * shape.head_bytes
            _finish(machine, b, shape, parts, total, out, place)
    return b.take()


Part = tuple[ScratchBuffer, IntLike, ScratchDType]


def _load(step: PassBuilder, part: Part) -> PassValue:
    buffer, offset, dtype = part
    return step.load(buffer, offset, (ELEMENT_BYTES[dtype],), dtype)


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
    shift = floor_log2(shape.kv.groups * machine.scratch.bytes_per_channel)
    at_once = machine.vector_unit.max_operands - 1
    kept: Part = (partial, keep, "f32")

    def add(parts: list[Part]) -> None:
        step = PassBuilder(machine, (shape.group * shape.kv.head_dim,))
        value = _load(step, parts[0])
        for part in parts[1:]:
            value = value + _load(step, part)
        step.store(value, partial, keep, (F32_BYTES,))
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
    """The sum of ``parts`` times the reciprocal ``total``, to every channel."""
    step = PassBuilder(machine, (shape.kv.head_dim,))
    value = _load(step, parts[0])
    for part in parts[1:]:
        value = value + _load(step, part)
    step.store(value * step.scalar(total), out.buffer, place, (BF16_BYTES,), "bf16", every_channel=True)
    b.passes(step.build())
