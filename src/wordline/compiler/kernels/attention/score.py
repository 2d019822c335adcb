"""q . K in the banks: scores of every token in a channel's pages."""

from __future__ import annotations

from wordline.compiler.kernel.builder import Builder, turn_row
from wordline.compiler.kernel.ir import Address, Command, Item, command
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, Register, linear
from wordline.compiler.kernels.attention.pages import Head, each_head, each_page
from wordline.compiler.kernels.attention.shape import COLUMN_BYTES, AttentionShape
from wordline.machines import Machine


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
    b = Builder()
    return each_head(b, shape, heads, _Score(machine, shape, b, q, scores, zeros))


class _Score:
    """One accumulator per query head of the group and bank row of tokens, as many at once as there are."""

    def __init__(
        self,
        machine: Machine,
        shape: AttentionShape,
        builder: Builder,
        q: ScratchTensor,
        scores: ScratchBuffer,
        zeros: ScratchBuffer,
    ) -> None:
        self.b, self.shape, self.q, self.scores, self.zeros = builder, shape, q, scores, zeros
        kv, accumulators = shape.kv, machine.bank_unit.accumulators
        pairs = [(query, tokens) for query in range(shape.group) for tokens in range(kv.page_tokens // kv.banks)]
        self.visits = [pairs[first : first + accumulators] for first in range(0, len(pairs), accumulators)]
        self.heads_a_fill = max(1, machine.buffer.columns // kv.head_columns)
        self.resident = shape.group <= self.heads_a_fill

    def prepare(self, head: Head) -> None:
        self.b.extend(turn_row(head.row(self.b, self.shape, 0)))
        self._zero(0)

    def begin(self, head: Head) -> None:
        if self.resident:
            self._fill(head, 0, 0)

    def run(self, head: Head, more: bool) -> None:
        b = self.b
        each_page(b, self.shape, head, lambda page, last: self._page(head, page, last, more))

    def _zero(self, visit: int) -> None:
        self.b.emit("WRMAC16", accumulator=0, count=len(self.visits[visit]), source=Address(self.zeros))

    def _fill(self, head: Head, ahead: int, query: int) -> None:
        """Queries from ``query`` on of the head, or of the one ``ahead`` of it."""
        shape = self.shape
        count = min(self.heads_a_fill, shape.group - query)
        first = self.q.offset + query * shape.head_bytes
        source = Address(self.q.buffer, (head.number + ahead) * (shape.group * shape.head_bytes) + first)
        self.b.emit("WRGB", buffer=0, count=count * shape.kv.head_columns, source=source)

    def _page(self, head: Head, page: Register, last: bool, more: bool) -> None:
        b, shape = self.b, self.shape
        row = head.row(b, shape, page)
        filled = -1
        for index, visit in enumerate(self.visits):
            filled = self._multiply(head, row, visit, filled)
            done = index == len(self.visits) - 1
            if done and not last:
                b.extend(turn_row(head.row(b, shape, linear(page) + 1)))
            elif done and more:
                b.extend(turn_row(head.next_row(b, shape)))
            target = linear(page) * shape.page_bytes + head.index * (shape.group * shape.score_bytes)
            self._read(visit, Address(self.scores, target))
            if not (done and last and not more):
                self._zero(0 if done else index + 1)
            if done and last and more and self.resident:
                self._fill(head, 1, 0)

    def _multiply(self, head: Head, row: Register, visit: list[tuple[int, int]], filled: int) -> int:
        """The visit's MACs; returns which fill of the buffer is in it afterwards."""
        kv = self.shape.kv
        commands: list[Command] = []
        for accumulator, (query, tokens) in enumerate(visit):
            if not self.resident and query // self.heads_a_fill != filled:
                self.b.rolled(commands)
                commands = []
                filled = query // self.heads_a_fill
                self._fill(head, 0, filled * self.heads_a_fill)
            first = tokens * kv.head_columns
            commands.append(
                command(
                    "MAC16",
                    row=linear(row) + first // kv.row_columns,
                    column=first % kv.row_columns,
                    buffer=(query % self.heads_a_fill) * kv.head_columns,
                    accumulator=accumulator,
                    count=kv.head_columns,
                )
            )
        self.b.rolled(commands)
        return filled

    def _read(self, visit: list[tuple[int, int]], target: Address) -> None:
        first = 0
        while first < len(visit):
            query, tokens = visit[first]
            count = sum(1 for other, _ in visit[first:] if other == query)
            offset: IntLike = query * self.shape.score_bytes + tokens * COLUMN_BYTES
            self.b.emit("RDMAC16", accumulator=first, count=count, target=target + offset)
            first += count
