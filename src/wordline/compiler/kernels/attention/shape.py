"""What the attention kernels share: sizes of one layer's attention, batches of heads, pages in use."""

from __future__ import annotations

from dataclasses import dataclass

from wordline.compiler.arguments import POSITION
from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.symbols import IntLike, Register, linear
from wordline.compiler.layout import KVLayout
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


def log2(value: int) -> int:
    return value.bit_length() - 1


def pages_in_use(b: Builder, shape: AttentionShape) -> tuple[Register, Register]:
    """(position, number of pages in use)."""
    position = b.argument(POSITION, "position")
    last = b.calc("SHR", position, log2(shape.kv.page_tokens), "last_page")
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


def token_extents(b: Builder, shape: AttentionShape) -> tuple[Register, tuple[IntLike, IntLike, IntLike]]:
    """(position, pass extents over all tokens of the pages in use): (pages a channel, channels, tokens of a page)."""
    kv = shape.kv
    position, pages = pages_in_use(b, shape)
    turns = b.calc("SHR", linear(pages) + (kv.channels - 1), log2(kv.channels), "turns")
    channels = b.calc("MIN", pages, kv.channels, "channels")
    return position, (turns, channels, kv.page_tokens)


def partial_bytes(machine: Machine, shape: AttentionShape, heads: range) -> int:
    """Bytes a channel of the ``partial`` buffer of a batch of KV heads."""
    kept = 0 if merges_all_channels(machine, shape) else shape.kv.head_dim * 4
    return len(heads) * shape.group * (shape.head_bytes + kept)
