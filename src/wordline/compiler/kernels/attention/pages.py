"""A channel's walk over heads and pages, arranged so that register-mode visits hide under row turns.

The first row of a head is opened, and the accumulators zeroed, before its data arrive; after the last MAC of a page
the next page's row is opened, and after the last page of a head the next head's, before the accumulators are read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from wordline.compiler.arguments import PAGE_TABLE
from wordline.compiler.kernel.builder import CHANNEL, Builder
from wordline.compiler.kernel.ir import Item
from wordline.compiler.kernel.symbols import IntLike, Linear, Register, linear
from wordline.compiler.kernels.attention.shape import AttentionShape, log2, pages_in_use


@dataclass(frozen=True, slots=True)
class Head:
    """A KV head in a channel's stream.

    Attributes:
        number: of the layer's KV heads.
        index: place in the batch.
        table: where its page-table entries of this channel begin, a word of controller memory.
        pages: how many of its pages are in this channel.
        any: 1 if there is one, else 0.
    """

    number: Linear
    index: Linear
    table: Register
    pages: Register
    any: Register

    def row(self, b: Builder, shape: AttentionShape, page: IntLike) -> Register:
        """First DRAM row of a local page."""
        return b.load(linear(self.table) + linear(page) * shape.kv.channels, "page_row")

    def next_row(self, b: Builder, shape: AttentionShape) -> Register:
        """First DRAM row of the next head's first local page (any row if it has none)."""
        return b.load(linear(self.table) + _entries(shape), "next_row")


class HeadWork(Protocol):
    """What a kernel does for a head."""

    def prepare(self, head: Head) -> None:
        """What needs no data: open the first row, zero the accumulators."""

    def begin(self, head: Head) -> None:
        """What needs data and comes before the first page."""

    def run(self, head: Head, more: bool) -> None:
        """All pages and the read-out; with ``more`` heads, and a page of this one, also prepare and begin the next."""


def _entries(shape: AttentionShape) -> int:
    """Page-table words of one head."""
    return shape.kv.entry(shape.layer, 1) - shape.kv.entry(shape.layer, 0)


def _head(b: Builder, shape: AttentionShape, number: Linear, index: Linear) -> Head:
    kv = shape.kv
    _, pages = pages_in_use(b, shape)
    # Page p is on channel (p + head) % channels.
    first = b.calc("AND", linear(CHANNEL) - number, kv.channels - 1, "first_page")
    local = b.calc("SHR", linear(pages) - first + (kv.channels - 1), log2(kv.channels), "local_pages")
    base = b.argument(PAGE_TABLE, "table")
    table = b.calc("ADD", linear(base) + CHANNEL, number * _entries(shape) + kv.entry(shape.layer, 0), "entries")
    return Head(number, index, table, local, b.calc("MIN", local, 1, "any_page"))


def each_page(b: Builder, shape: AttentionShape, head: Head, work: Callable[[Register, bool], None]) -> None:
    """``work(page, last)`` for every local page; apart for the last one, which prepares for something else."""
    final = b.calc("SUB", head.pages, 1, "final_page")
    if shape.kv.pages_per_channel > 1:
        with b.loop(final, "page") as page:
            work(page, False)
    with b.loop(head.any):
        work(final, True)


def each_head(
    b: Builder, shape: AttentionShape, heads: range, work: HeadWork
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body) of the work on ``heads``: one after the other, the last one apart."""
    first = _head(b, shape, linear(heads.start), linear(0))
    work.prepare(first)
    prologue = b.take()
    work.begin(first)
    if len(heads) == 1:
        work.run(first, False)
        return prologue, b.take()

    def visit(index: Linear, more: bool) -> None:
        head = _head(b, shape, index + heads.start, index)
        before = _head(b, shape, index + (heads.start - 1), index)
        # A head with a page prepares the one after it; after one without, a head prepares itself.
        alone = b.calc("LT", before.any, head.any, "alone")
        with b.loop(b.calc("MIN", alone, index, "unprepared")):
            work.prepare(head)
            work.begin(head)
        work.run(head, more)

    with b.loop(len(heads) - 1, "head") as index:
        visit(linear(index), True)
    visit(linear(len(heads) - 1), False)
    return prologue, b.take()
