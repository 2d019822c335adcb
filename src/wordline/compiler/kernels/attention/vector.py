"""The vector unit's part of attention: softmax over the scores in place, and the sum of the channels' parts."""

from __future__ import annotations

from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.ir import Item
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchDType, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, SharedRegister, linear
from wordline.compiler.kernels.attention.shape import (
    ELEMENT_BYTES,
    AttentionShape,
    log2,
    merges_all_channels,
    token_extents,
)
from wordline.compiler.vector.builder import PassBuilder, PassValue
from wordline.machines import Machine


def softmax(
    machine: Machine, shape: AttentionShape, heads: range, scores: ScratchBuffer, sums: list[list[SharedRegister]]
) -> tuple[Item, ...]:
    """Body of the vector task: scores to unnormalised probabilities exp(scale * (s - max)) in place (bf16).

    Their sums go to ``sums``, one a KV head and query head. A sum is of the rounded probabilities, so that they and
    their sum agree. Tokens outside the window or after the position become 0.
    """
    b, kv = Builder(), shape.kv
    position, extents = token_extents(b, shape)
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
    more = None if all_at_once else token_extents(b, shape)[1][1]
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
    shift = log2(machine.scratch.bytes_per_channel)
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
