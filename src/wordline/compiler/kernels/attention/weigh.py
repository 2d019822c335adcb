"""P V in the banks: each channel's part of the weighted sum of V."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from wordline.compiler.kernel.builder import Builder, turn_row
from wordline.compiler.kernel.ir import Address, Command, Item, command
from wordline.compiler.kernel.scratch import ScratchBuffer
from wordline.compiler.kernel.symbols import Register, linear
from wordline.compiler.kernels.attention.pages import Head, each_head, each_page
from wordline.compiler.kernels.attention.shape import COLUMN_BYTES, AttentionShape, merges_all_channels
from wordline.machines import Machine


def weigh(
    machine: Machine,
    shape: AttentionShape,
    heads: range,
    scores: ScratchBuffer,
    partial: ScratchBuffer,
    zeros: ScratchBuffer,
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body): this channel's part of P V for the query heads of the KV heads ``heads``.

    ``partial``: bf16 [heads, group, head_dim]. A channel without a page of a head delivers zeros where all channels'
    parts are added, and nothing where only those with pages are.
    """
    b = Builder()
    return each_head(b, shape, heads, _Weigh(machine, shape, b, scores, partial, zeros))


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one run over the pages computes: query heads of the group, and which 16-dimension parts of the output."""

    queries: range
    parts: range

    @property
    def accumulators(self) -> int:
        return len(self.queries) * len(self.parts)


def _turns(machine: Machine, shape: AttentionShape) -> list[_Turn]:
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


class _Weigh:
    def __init__(
        self,
        machine: Machine,
        shape: AttentionShape,
        builder: Builder,
        scores: ScratchBuffer,
        partial: ScratchBuffer,
        zeros: ScratchBuffer,
    ) -> None:
        self.b, self.shape, self.scores, self.partial, self.zeros = builder, shape, scores, partial, zeros
        self.turns = _turns(machine, shape)
        # Token columns whose probabilities are in the buffer at once: a page's, unless the buffer is smaller.
        self.chunk = min(shape.kv.token_columns, machine.buffer.columns)
        self.idle_too = merges_all_channels(machine, shape)

    def prepare(self, head: Head) -> None:
        self._start(head, self.turns[0])

    def begin(self, head: Head) -> None:
        pass  # the probabilities differ from page to page

    def run(self, head: Head, more: bool) -> None:
        b = self.b
        for number, turn in enumerate(self.turns):
            if number:
                self._start(head, turn)
            each_page(b, self.shape, head, functools.partial(self._page, head, turn))
            final = more and number == len(self.turns) - 1
            with b.loop(1 if self.idle_too else head.any):
                self._finish(head, turn, final)

    def _first_row(self, turn: _Turn) -> int:
        """First DRAM row of V that the turn reads, from the start of a page."""
        kv = self.shape.kv
        return kv.rows_per_side + turn.parts.start * kv.token_columns // kv.row_columns

    def _start(self, head: Head, turn: _Turn) -> None:
        self.b.extend(turn_row(linear(head.row(self.b, self.shape, 0)) + self._first_row(turn)))
        self._zero(turn)

    def _zero(self, turn: _Turn) -> None:
        self.b.emit("WRMAC16", accumulator=0, count=turn.accumulators, source=Address(self.zeros))

    def _finish(self, head: Head, turn: _Turn, more: bool) -> None:
        """Read the turn's results; with ``more`` heads to come, prepare the next one."""
        shape = self.shape
        if more:
            self.b.extend(turn_row(linear(head.next_row(self.b, shape)) + self._first_row(self.turns[0])))
        place = head.index * (shape.group * shape.head_bytes) + turn.queries.start * shape.head_bytes
        target = Address(self.partial, place + turn.parts.start * COLUMN_BYTES)
        self.b.emit("RDMAC16", accumulator=0, count=turn.accumulators, target=target)
        if more:
            self._zero(self.turns[0])

    def _page(self, head: Head, turn: _Turn, page: Register, last: bool) -> None:
        """One page: its row is open; the next page's is opened after it."""
        b, shape, kv = self.b, self.shape, self.shape.kv
        row = head.row(b, shape, page)
        for start in range(0, kv.token_columns, self.chunk):
            width = min(self.chunk, kv.token_columns - start)
            for slot, query in enumerate(turn.queries):
                place = linear(page) * shape.page_bytes + head.index * (shape.group * shape.score_bytes)
                source = Address(self.scores, place + (query * shape.score_bytes + start * COLUMN_BYTES))
                b.emit("WRGB", buffer=slot * width, count=width, source=source)
            self._multiply(turn, row, start, width)
        if not last:
            b.extend(turn_row(linear(head.row(b, shape, linear(page) + 1)) + self._first_row(turn)))

    def _multiply(self, turn: _Turn, row: Register, start: int, width: int) -> None:
        """The MACs of token columns ``start .. start + width - 1`` of a page, whose probabilities are in the buffer."""
        kv = self.shape.kv
        commands: list[Command] = []
        for number, part in enumerate(turn.parts):
            first = part * kv.token_columns + start
            for slot in range(len(turn.queries)):
                commands.append(
                    command(
                        "MAC16",
                        row=linear(row) + kv.rows_per_side + first // kv.row_columns,
                        column=first % kv.row_columns,
                        buffer=slot * width,
                        accumulator=slot * len(turn.parts) + number,
                        count=width,
                    )
                )
        self.b.rolled(commands)
