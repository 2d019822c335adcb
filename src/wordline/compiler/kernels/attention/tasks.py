"""The tasks of one layer's attention, in their sequential order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wordline.compiler.choices import WHOLE, AttentionChoice, Cuts
from wordline.compiler.kernel.ir import Item, Share
from wordline.compiler.kernel.scratch import ScratchBuffer, ScratchTensor
from wordline.compiler.kernel.symbols import SharedRegister
from wordline.compiler.kernels.attention import vector
from wordline.compiler.kernels.attention.append import append, append_value
from wordline.compiler.kernels.attention.pages import Stretch
from wordline.compiler.kernels.attention.score import score
from wordline.compiler.kernels.attention.shape import AttentionShape, merges_all_channels, partial_bytes
from wordline.compiler.kernels.attention.weigh import first_value_row, single_run, weigh
from wordline.isa.declare import Engine
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes a :class:`wordline.compiler.kernel.ir.Task`. ``always``: also where no result is wanted."""

    engine: Engine
    name: str
    body: tuple[Item, ...]
    reads: tuple[ScratchBuffer, ...]
    writes: tuple[ScratchBuffer, ...]
    prologue: tuple[Item, ...] = ()
    shares: tuple[Share, ...] = ()
    always: bool = False


class AttentionSteps:
    """All steps, with q, k, v (bf16, every channel) in scratch and the result, bf16 in every channel, in ``out``.

    ``choice``: its ``groups`` are those of the layout; with cuts, the vector unit works on one part of the pages while
    the channels work on another. ``overlap``: the scores of two rounds are in scratch at once, so that channels and
    vector unit overlap. ``apart``: appending is a step of its own, needed if some submissions do nothing else.

    Attributes:
        steps: in their sequential order.
    """

    def __init__(
        self,
        machine: Machine,
        shape: AttentionShape,
        q: ScratchTensor,
        k: ScratchTensor,
        v: ScratchTensor,
        out: ScratchTensor,
        zeros: ScratchBuffer,
        choice: AttentionChoice,
        *,
        overlap: bool,
        apart: bool,
    ) -> None:
        self.machine, self.shape, self.q, self.out, self.zeros = machine, shape, q, out, zeros
        self.key, self.value = (None if apart else k), (None if apart else v)
        rounds = shape.kv.rounds
        self.choice, self.cut = choice, choice.cut
        self.scores = [self._buffer("scores", i, shape.group * shape.score_bytes) for i in range(rounds)]
        self.partials = [self._buffer("partial", i, partial_bytes(machine, shape)) for i in range(rounds)]
        # One for all rounds: in between, nothing that another engine waits for takes its place.
        self.sums = ScratchBuffer(f"sums{shape.layer}", shape.kv.groups * shape.group * vector.F32_BYTES)
        self.steps: list[Step] = []
        if apart:
            body = append(shape, k, v)
            self.steps.append(Step(Engine.CHANNEL, "append", body, (k.buffer, v.buffer), (), always=True))
        self.walks = self._order(1 if overlap else 0)
        for index, (is_score, stretch) in enumerate(self.walks):
            following = self.walks[index + 1][1] if index + 1 < len(self.walks) else None
            if is_score:
                self._score(stretch, following, index == 0)
            else:
                self._weigh(stretch, following)

    def _buffer(self, name: str, round_: int, size: int) -> ScratchBuffer:
        return ScratchBuffer(f"{name}{self.shape.layer}.{round_}", size)

    def _registers(self, name: str, round_: int) -> vector.Registers:
        return [
            [SharedRegister(f"{name}{self.shape.layer}.{round_}.{group}.{query}") for query in range(self.shape.group)]
            for group in range(self.shape.kv.groups)
        ]

    def _score_cuts(self, round_: int) -> Cuts:
        return self.choice.score_cuts if round_ == 0 else WHOLE

    def _weigh_cuts(self, round_: int) -> Cuts:
        last = round_ == self.shape.kv.rounds - 1
        return self.choice.weigh_cuts if last and single_run(self.machine, self.shape) else WHOLE

    def _weighed(self, round_: int) -> list[Stretch]:
        """The pieces in which a round is weighed, in order: parts of the pages for all query heads, or one query head
        after the other and parts of the pages for the last.
        """
        cuts, group = self._weigh_cuts(round_), self.shape.group
        row = first_value_row(self.machine, self.shape)
        last = round_ == self.shape.kv.rounds - 1
        query = None
        pieces = []
        if self.choice.query_by_query and last and group > 1 and merges_all_channels(self.machine, self.shape):
            query = group - 1
            pieces = [Stretch(round_, WHOLE, 0, row, earlier) for earlier in range(query)]
        return pieces + [Stretch(round_, cuts, part, row, query) for part in range(len(cuts))]

    def _order(self, ahead: int) -> list[tuple[bool, Stretch]]:
        """What the channels do, in order: (the scores, rather than the weighing; the stretch)."""
        rounds = self.shape.kv.rounds
        cuts = [self._score_cuts(i) for i in range(rounds)]
        scores = [[(True, Stretch(i, cuts[i], part)) for part in range(len(cuts[i]))] for i in range(rounds)]
        weighs = [[(False, stretch) for stretch in self._weighed(i)] for i in range(rounds)]
        order = [part for parts in scores[:ahead] for part in parts]
        for i in range(rounds):
            order += scores[i + ahead] if i + ahead < rounds else []
            order += weighs[i]
        return order

    def _add(
        self,
        engine: Engine,
        name: str,
        stretch: Stretch,
        body: tuple[Item, ...],
        reads: Sequence[ScratchBuffer],
        writes: Sequence[ScratchBuffer],
        prologue: tuple[Item, ...] = (),
        shares: Sequence[Share] = (),
    ) -> None:
        label = f"{name} {stretch.round}" + (f".{stretch.part}" if len(stretch.cuts) > 1 else "")
        if stretch.query is not None:
            label += f" query {stretch.query}"
        self.steps.append(Step(engine, label, body, tuple(reads), tuple(writes), prologue, tuple(shares)))

    def _shares(self, stretch: Stretch, buffer: ScratchBuffer) -> list[Share]:
        """What a step touches of a round's buffer if it works on one part of the pages, or on one query head."""
        part, parts = stretch.part, len(stretch.cuts)
        if stretch.query is not None:
            part, parts = stretch.query * parts + part, self.shape.group * parts
        return [] if parts == 1 else [Share(buffer, part, parts)]

    def _last(self, stretch: Stretch) -> bool:
        return stretch.ends and stretch.query in (None, self.shape.group - 1)

    def _score(self, stretch: Stretch, following: Stretch | None, first: bool) -> None:
        machine, shape, round_, key = self.machine, self.shape, stretch.round, self.key
        scores = self.scores[round_]
        reads = [self.q.buffer] + ([key.buffer] if key is not None else [])
        # Where the vector unit waits for the first scores, a refresh can wait.
        opening = not self.cut if first else None
        prologue, body = score(machine, shape, stretch, following, opening, self.q, scores, self.zeros, key)
        # The first part takes over the whole buffer from whoever had these bytes before.
        shares = [] if stretch.begins else self._shares(stretch, scores)
        self._add(Engine.CHANNEL, "score", stretch, body, reads, [scores], prologue, shares)
        if stretch.begins:
            self.largest = self._registers("max", round_)
        body = vector.maxima(machine, shape, round_, stretch.cuts, stretch.part, scores, self.largest)
        self._add(Engine.VECTOR, "maximum", stretch, body, [scores], [], (), self._shares(stretch, scores))
        if stretch.ends:
            self._exponentials(round_)

    def _exponentials(self, round_: int) -> None:
        machine, shape, scores = self.machine, self.shape, self.scores[round_]
        sums = self._registers("sum", round_)
        for stretch in self._weighed(round_):
            body = vector.exponentials(machine, shape, stretch, scores, self.largest, sums)
            self._add(Engine.VECTOR, "softmax", stretch, body, [scores], [scores], (), self._shares(stretch, scores))
        body = vector.reciprocals(machine, sums, self.sums)
        self._add(Engine.VECTOR, "invert", Stretch(round_), body, [], [self.sums])

    def _weigh(self, stretch: Stretch, following: Stretch | None) -> None:
        machine, shape, round_, value = self.machine, self.shape, stretch.round, self.value
        scores, partial, sums = self.scores[round_], self.partials[round_], self._registers("sum", round_)
        first = stretch.begins and not stretch.query
        if self.cut and value is not None and first:
            # The channels wait for the first probabilities: writing V now costs nothing.
            body = append_value(shape, round_, stretch.first_row, value)
            self._add(Engine.CHANNEL, "append", Stretch(round_), body, [value.buffer], [])
        if self.cut or not first:
            value = None
        reads = [scores] + ([value.buffer] if value is not None else [])
        writes = [partial] if stretch.ends else []
        # At the end nothing hides a refresh; what is put off may fall into the time in which the vector unit adds up.
        late = stretch.query is not None and 2 * stretch.query >= shape.group
        prologue, body = weigh(machine, shape, stretch, following, scores, partial, self.zeros, value, late)
        # The first takes over the whole buffer of results, the last gives up that of the probabilities.
        shares = [] if self._last(stretch) else self._shares(stretch, scores)
        if stretch.query:
            shares += self._shares(stretch, partial)
        self._add(Engine.CHANNEL, "weigh", stretch, body, reads, writes, prologue, shares)
        if stretch.ends:
            body = vector.merge(machine, shape, round_, partial, sums, self.out, stretch.query)
            shares = [] if stretch.query is None or self._last(stretch) else self._shares(stretch, partial)
            self._add(Engine.VECTOR, "merge", stretch, body, [partial], [partial, self.out.buffer], (), shares)
