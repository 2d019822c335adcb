"""P V in the banks: each channel's part of the weighted sum of V."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wordline.compiler.integers import floor_log2
from wordline.compiler.kernel.builder import Builder
from wordline.compiler.kernel.ir import Address, Command, Item, command
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import IntLike, Linear, Register, linear
from wordline.compiler.kernels.attention.append import write_value
from wordline.compiler.kernels.attention.pages import Pages, Stretch, Walk
from wordline.compiler.kernels.attention.shape import (
    AttentionShape,
    floor_power_of_two,
    merges_all_channels,
)
from wordline.machines import Machine


def weigh(
    machine: Machine,
    shape: AttentionShape,
    stretch: Stretch,
    following: Stretch | None,
    scores: ScratchBuffer,
    partial: ScratchBuffer,
    zeros: ScratchBuffer,
    value: ScratchTensor | None,
    late: bool,
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """(prologue, body): this channel's part of P V over a stretch, for its query heads of the KV head.

    ``partial``: bf16 [group, head_dim], read out after the last part of the pages. A channel without a page of the head
    delivers zeros where all channels' parts are added, and nothing where only those with pages are. ``following``: the
    stretch whose first row this one opens at its end. ``value``: the step's V, which is written into its page on the
    way. ``late``: refreshes are put off.
    """
    return _Weigh(machine, shape, stretch, following, scores, partial, zeros, value, late).code()


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one run over the pages computes: query heads of the group, and which 16-dimension parts of the output."""

    queries: range
    parts: range

    @property
    def accumulators(self) -> int:
        return len(self.queries) * len(self.parts)


def _turns(machine: Machine, shape: AttentionShape, queries: range) -> list[_Turn]:
    """As many query heads at once as buffer and accumulators hold; a head that needs more than all is cut by parts."""
    kv = shape.kv
    parts, accumulators = kv.head_dim // kv.banks, machine.bank_unit.accumulators
    at_once = min(accumulators // parts, machine.buffer.columns // kv.token_columns, len(queries))
    if at_once:
        return [
            _Turn(range(first, min(first + at_once, queries.stop)), range(parts))
            for first in range(queries.start, queries.stop, at_once)
        ]
    return [
        _Turn(range(query, query + 1), range(first, min(first + accumulators, parts)))
        for query in queries
        for first in range(0, parts, accumulators)
    ]


def single_run(machine: Machine, shape: AttentionShape) -> bool:
    """One run over the pages computes everything, so that accumulators may be kept from one part to the next."""
    return len(_turns(machine, shape, shape.queries(None))) == 1


def first_value_row(machine: Machine, shape: AttentionShape) -> int:
    """The row of a page that :func:`weigh` reads first."""
    return _first_row(shape, _turns(machine, shape, shape.queries(None))[0])


def _first_row(shape: AttentionShape, turn: _Turn) -> int:
    kv = shape.kv
    return kv.rows_per_side + turn.parts.start * kv.token_columns // kv.row_columns


class _Weigh:
    def __init__(
        self,
        machine: Machine,
        shape: AttentionShape,
        stretch: Stretch,
        following: Stretch | None,
        scores: ScratchBuffer,
        partial: ScratchBuffer,
        zeros: ScratchBuffer,
        value: ScratchTensor | None,
        late: bool,
    ) -> None:
        self.b, self.shape, self.scores, self.partial, self.zeros = Builder(), shape, scores, partial, zeros
        self.stretch, self.following, self.value, self.late = stretch, following, value, late
        self.turns = _turns(machine, shape, shape.queries(stretch.query))
        self.buffer_columns = machine.buffer.columns
        # Token columns whose probabilities are in the buffer at once: a page's, unless the buffer is smaller.
        self.chunk = min(shape.kv.token_columns, machine.buffer.columns)
        self.idle_too = merges_all_channels(machine, shape)
        self.pages = Pages(self.b, shape)

    def code(self) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        b = self.b
        walk = self._walk(0)
        if self.stretch.begins:
            self._zero(self.turns[0])
        newest = None if self.value is None else self.pages.newest(self.stretch.round)
        prologue = b.take()
        for number, turn in enumerate(self.turns):
            if number:
                walk = self._walk(number)
                self._zero(turn)
            self._run(walk, turn, None if number else newest)
            walk.leave()
            if self.stretch.ends:
                self._read(turn)
        return prologue, b.take()

    def _walk(self, number: int) -> Walk:
        """The walk of one run; at its end the next run's first row is opened."""

        def stretch(number: int) -> Stretch:
            return replace(self.stretch, first_row=_first_row(self.shape, self.turns[number]))

        last = number == len(self.turns) - 1
        following = self.following if last else stretch(number + 1)
        return Walk(self.pages, stretch(number), following, late=self.late)

    def _zero(self, turn: _Turn) -> None:
        self.b.emit("WRMAC16", accumulator=0, count=turn.accumulators, source=Address(self.zeros))

    def _read(self, turn: _Turn) -> None:
        place = turn.queries.start * self.shape.head_bytes + turn.parts.start * self.shape.column_bytes
        count = linear(turn.accumulators)
        if not self.idle_too:
            count = linear(self.b.calc("MIN", self.pages.local(self.stretch.round), 1, "any")) * turn.accumulators
        self.b.emit("RDMAC16", accumulator=0, count=count, target=Address(self.partial, linear(place)))

    def _run(self, walk: Walk, turn: _Turn, newest: Register | None) -> None:
        """Every page: its row is open; as many as the buffer holds the probabilities of share a register visit."""
        b, columns = self.b, self.shape.kv.token_columns
        if self.chunk < columns:
            with b.loop(walk.count, "local") as local:
                page = linear(b.calc("ADD", local, walk.first, "page"))
                self._append(walk, page, newest)
                for start in range(0, columns, self.chunk):
                    width = min(self.chunk, columns - start)
                    self._fill(turn, page, start, width, linear(width))
                    self._multiply(walk, turn, start, width, width, linear(0))
                walk.turn(page)
            return
        at_once = floor_power_of_two(self.buffer_columns // (len(turn.queries) * columns))
        visits = walk.count
        if at_once > 1:
            visits = b.calc("SHR", linear(walk.count) + (at_once - 1), floor_log2(at_once), "visits")
        with b.loop(visits, "visit") as visit:
            here: IntLike = 1
            if at_once > 1:
                left = b.calc("SUB", walk.count, linear(visit) * at_once, "left")
                here = b.calc("MIN", left, at_once, "here")
            first = b.calc("ADD", linear(visit) * at_once, walk.first, "page")
            self._fill(turn, linear(first), 0, at_once * columns, linear(here) * columns)
            b.normal_mode()
            with b.loop(here, "slot") as slot:
                page = linear(b.calc("ADD", first, slot, "page"))
                self._append(walk, page, newest)
                self._multiply(walk, turn, 0, columns, at_once * columns, linear(slot) * columns)
                walk.turn(page)
            # Whatever comes next needs it: the next pages' probabilities, or reading the results.
            b.register_mode()

    def _append(self, walk: Walk, page: Linear, newest: Register | None) -> None:
        if self.value is not None and newest is not None:
            with self.b.loop(self.b.calc("EQ", page, newest, "own")):
                write_value(self.pages, linear(walk.row), self.pages.head(self.stretch.round), self.value)

    def _fill(self, turn: _Turn, page: Linear, start: int, pitch: int, count: Linear) -> None:
        """Probabilities from token column ``start`` of ``page`` on into the buffer, ``pitch`` columns a query head."""
        for slot, query in enumerate(turn.queries):
            place = page * self.shape.page_bytes + (query * self.shape.score_bytes + start * self.shape.column_bytes)
            self.b.emit("WRGB", buffer=slot * pitch, count=count, source=Address(self.scores, place))

    def _multiply(self, walk: Walk, turn: _Turn, start: int, width: int, pitch: int, buffer: Linear) -> None:
        """The MACs of token columns ``start .. start + width - 1`` of a page, their probabilities at ``buffer``."""
        kv = self.shape.kv
        commands: list[Command] = []
        for number, part in enumerate(turn.parts):
            first = part * kv.token_columns + start
            for slot in range(len(turn.queries)):
                commands.append(
                    command(
                        "MAC16",
                        row=linear(walk.row) + kv.rows_per_side + first // kv.row_columns,
                        column=first % kv.row_columns,
                        buffer=buffer + slot * pitch,
                        accumulator=slot * len(turn.parts) + number,
                        count=width,
                    )
                )
        self.b.rolled(commands)
