"""q . K in the banks: scores of every token in a channel's pages."""

from __future__ import annotations

from wordline.compiler.integers import floor_log2
from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.ir import Address, Command, Item, command
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, Linear, Register, linear
from wordline.compiler.kernels.attention.append import write_key
from wordline.compiler.kernels.attention.pages import Pages, Stretch, Walk
from wordline.compiler.kernels.attention.shape import AttentionShape, floor_power_of_two
from wordline.machines import Machine


def score(
    machine: Machine,
    shape: AttentionShape,
    stretch: Stretch,
    following: Stretch | None,
    opening: bool | None,
    q: ScratchTensor,
    scores: ScratchBuffer,
    zeros: ScratchBuffer,
    key: ScratchTensor | None,
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body): q . K of every token in the pages of a stretch, for the query heads of the channel's KV head.

    ``scores``: per query head of the group ``score_bytes``, tokens of a page in order, bf16. ``opening``: open
    the first row, after a refresh if True; None: an earlier task has. ``following``: the stretch whose first row this
    one opens at its end. ``key``: the step's K, which is written into its page on the way.
    """
    return _Score(machine, shape, stretch, following, q, scores, zeros, key).code(opening)


class _Score:
    """One accumulator per query head of the group and bank row of tokens.

    Several pages share a register visit, as many as the accumulators hold; a page that needs more has several visits.
    """

    def __init__(
        self,
        machine: Machine,
        shape: AttentionShape,
        stretch: Stretch,
        following: Stretch | None,
        q: ScratchTensor,
        scores: ScratchBuffer,
        zeros: ScratchBuffer,
        key: ScratchTensor | None,
    ) -> None:
        self.b, self.shape, self.q, self.scores, self.zeros, self.key = Builder(), shape, q, scores, zeros, key
        kv, accumulators = shape.kv, machine.bank_unit.accumulators
        self.token_rows = kv.page_tokens // kv.banks
        pairs = [(query, tokens) for query in range(shape.group) for tokens in range(self.token_rows)]
        self.visits = [pairs[first : first + accumulators] for first in range(0, len(pairs), accumulators)]
        self.pages_a_visit = floor_power_of_two(accumulators // len(pairs)) if len(self.visits) == 1 else 1
        self.heads_a_fill = max(1, machine.buffer.columns // kv.head_columns)
        self.resident = shape.group <= self.heads_a_fill
        self.pages = Pages(self.b, shape)
        self.walk = Walk(self.pages, stretch, following)

    def code(self, opening: bool | None) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        b, walk, at_once = self.b, self.walk, self.pages_a_visit
        if opening is not None:
            walk.open(opening)
        some = b.calc("MIN", walk.count, at_once, "some")
        self._zero(linear(some) * len(self.visits[0]))
        newest = None if self.key is None else self.pages.newest(walk.stretch.round)
        prologue = b.take()
        if self.resident and walk.stretch.begins:
            count = b.calc("MIN", walk.count, 1, "any") if at_once > 1 else some
            self._fill(linear(count) * (self.shape.group * self.shape.kv.head_columns), 0)
        visits = (
            walk.count if at_once == 1 else b.calc("SHR", linear(walk.count) + (at_once - 1), floor_log2(at_once), "v")
        )
        with b.loop(visits, "visit") as visit:
            b.normal_mode()
            left = b.calc("SUB", walk.count, linear(visit) * at_once, "left")
            here = b.calc("MIN", left, at_once, "here")
            first = b.calc("ADD", linear(visit) * at_once, walk.first, "page")
            rest = b.calc("MIN", linear(left) - at_once, at_once, "rest")
            with b.loop(here, "slot") as slot:
                page = b.calc("ADD", first, slot, "page")
                self._page(linear(page), linear(slot) * len(self.visits[-1]), newest)
            self._read(self.visits[-1], linear(first), here)
            self._zero(linear(rest) * len(self.visits[0]))
        walk.leave()
        return prologue, b.take()

    def _page(self, page: Linear, accumulator: Linear, newest: Register | None) -> None:
        """All MACs of a page, and the visits in its midst."""
        b = self.b
        if self.key is not None and newest is not None:
            with b.loop(b.calc("EQ", page, newest, "here")):
                write_key(self.pages, linear(self.walk.row), self.pages.head(self.walk.stretch.round), self.key)
        filled = -1
        for index, visit in enumerate(self.visits):
            last = index == len(self.visits) - 1
            filled = self._multiply(visit, accumulator if last else linear(0), filled)
            if not last:
                self._read(visit, page, 1)
                self._zero(linear(len(self.visits[index + 1])))
        self.walk.turn(page)

    def _zero(self, count: Linear) -> None:
        self.b.emit("WRMAC16", accumulator=0, count=count, source=Address(self.zeros))

    def _fill(self, count: Linear, query: int) -> None:
        """The head's queries from ``query`` on."""
        shape = self.shape
        head = self.pages.head(self.walk.stretch.round) * (shape.group * shape.head_bytes)
        source = Address(self.q.buffer, head + (self.q.offset + query * shape.head_bytes))
        self.b.emit("WRGB", buffer=0, count=count, source=source)

    def _multiply(self, visit: list[tuple[int, int]], accumulator: Linear, filled: int) -> int:
        """The MACs of a visit in one page; returns which fill of the buffer is in it afterwards."""
        kv = self.shape.kv
        commands: list[Command] = []
        for index, (query, tokens) in enumerate(visit):
            if not self.resident and query // self.heads_a_fill != filled:
                self.b.rolled(commands)
                commands = []
                filled = query // self.heads_a_fill
                heads = min(self.heads_a_fill, self.shape.group - filled * self.heads_a_fill)
                self._fill(linear(heads * kv.head_columns), filled * self.heads_a_fill)
            first = tokens * kv.head_columns
            commands.append(
                command(
                    "MAC16",
                    row=linear(self.walk.row) + first // kv.row_columns,
                    column=first % kv.row_columns,
                    buffer=(query % self.heads_a_fill) * kv.head_columns,
                    accumulator=accumulator + index,
                    count=kv.head_columns,
                )
            )
        self.b.rolled(commands)
        return filled

    def _read(self, visit: list[tuple[int, int]], page: Linear, pages: IntLike) -> None:
        """Read the scores of ``pages`` pages from ``page`` on."""
        b, shape = self.b, self.shape
        target = Address(self.scores, page * shape.page_bytes)
        if shape.group == 1 and len(self.visits) == 1:
            b.emit("RDMAC16", accumulator=0, count=linear(pages) * self.token_rows, target=target)
        elif self.pages_a_visit == 1:
            self._read_page(visit, linear(0), target)
        else:
            with b.loop(pages, "read") as slot:
                self._read_page(visit, linear(slot) * len(visit), target + linear(slot) * shape.page_bytes)

    def _read_page(self, visit: list[tuple[int, int]], accumulator: Linear, target: Address) -> None:
        first = 0
        while first < len(visit):
            query, tokens = visit[first]
            count = sum(1 for other, _ in visit[first:] if other == query)
            offset = query * self.shape.score_bytes + tokens * self.shape.column_bytes
            self.b.emit("RDMAC16", accumulator=accumulator + first, count=count, target=target + offset)
            first += count
