"""The choices of one operation as a search sees them: what is legal, most promising first, and how long it takes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from wordline.compiler.alone import attention_alone, gemv_alone
from wordline.compiler.arguments import argument_memory
from wordline.compiler.candidates import attention_candidates, gemv_candidates
from wordline.compiler.choices import AttentionChoice, GemvChoice, GemvShape, HeadShape, Illegal, plain_gemv
from wordline.compiler.gemv_plan import first_choice, gemv_cost, illegal
from wordline.compiler.kernels import attention
from wordline.machines import Machine
from wordline.sim.limits import decode_limits, gemv_limits
from wordline.sim.shapes import ModelShape
from wordline.sim.timing import TimingModel

Choice = GemvChoice | AttentionChoice


def choice_text(choice: Choice) -> str:
    """A choice as text that names it in files; every field appears."""
    return json.dumps(dataclasses.asdict(choice), separators=(",", ":"))


@dataclass(frozen=True)
class Candidates:
    """``legal``: the cost model's first choice, then the others, most promising first; ``out``: with the reason."""

    legal: tuple[Choice, ...]
    out: tuple[tuple[Choice, Illegal], ...]


class Space(Protocol):
    """One operation's choices.

    ``bound`` is the limit that its times are compared with, ``bound_cycles`` that limit.
    """

    @property
    def kind(self) -> str: ...

    @property
    def text(self) -> str:
        """What is timed; the same text, machine and compiler give the same times."""
        ...

    @property
    def bound(self) -> str: ...

    @property
    def bound_cycles(self) -> float: ...

    def candidates(self) -> Candidates:
        """All of them."""
        ...

    def describe(self, choice: Choice) -> str:
        """A choice for people."""
        ...

    def cycles(self, model: TimingModel, choice: Choice) -> int:
        """Time on the cycle model. Raises ``WordlineError`` for what cannot be compiled."""
        ...


@dataclass(frozen=True)
class GemvSpace:
    """The products of one shape."""

    machine: Machine
    shape: GemvShape
    kind = "gemv"
    bound = "L3"

    @property
    def text(self) -> str:
        return str(self.shape)

    @property
    def bound_cycles(self) -> float:
        # The rows of matrices that share their input follow each other, so they are bounded like one.
        limits = gemv_limits(self.machine, sum(self.shape.outputs), self.shape.k)
        return limits.l3 / self.machine.clock.tck_ns

    def candidates(self) -> Candidates:
        machine, shape, first = self.machine, self.shape, first_choice(self.machine, self.shape)
        legal: list[tuple[int, GemvChoice]] = []
        out: list[tuple[Choice, Illegal]] = []
        for choice in gemv_candidates(machine, shape):
            reason = illegal(machine, shape, choice)
            if reason is not None:
                out.append((choice, reason))
            elif choice != first:
                legal.append((gemv_cost(machine, shape, choice).cycles, choice))
        legal.sort(key=lambda pair: pair[0])
        return Candidates((first, *(choice for _, choice in legal)), tuple(out))

    def describe(self, choice: Choice) -> str:
        assert isinstance(choice, GemvChoice)
        return choice.beside(plain_gemv(self.machine)) or "plain"

    def cycles(self, model: TimingModel, choice: Choice) -> int:
        assert isinstance(choice, GemvChoice)
        slot = model.load(gemv_alone(self.machine, self.shape, choice).program)
        try:
            return model.run(slot).cycles
        finally:
            model.unload(slot)


@dataclass(frozen=True)
class AttentionSpace:
    """The attention of one layer, timed at each of ``contexts``; its times are of all of them together."""

    machine: Machine
    heads: HeadShape
    contexts: tuple[int, ...]
    kind = "attention"
    bound = "L2"

    @property
    def text(self) -> str:
        return f"{self.heads}, at {', '.join(map(str, self.contexts))}"

    @property
    def bound_cycles(self) -> float:
        heads, size = self.heads, self.heads.kv_heads * self.heads.group * self.heads.head_dim
        layer = ModelShape(
            name=self.text,
            layers=1,
            hidden=size,
            ffn=size,
            heads=heads.kv_heads * heads.group,
            kv_heads=heads.kv_heads,
            head_dim=heads.head_dim,
            vocab=size,
        )
        limits = (decode_limits(self.machine, layer, 1, context).attention.l2 for context in self.contexts)
        return sum(limits) / self.machine.clock.tck_ns

    def candidates(self) -> Candidates:
        machine, heads = self.machine, self.heads
        first = attention.first_choice(machine, heads)
        legal: list[AttentionChoice] = []
        out: list[tuple[Choice, Illegal]] = []
        for choice in attention_candidates(machine, heads):
            reason = attention.illegal_groups(machine, heads, choice.groups)
            if reason is not None:
                out.append((choice, reason))
            elif choice != first:
                legal.append(choice)
        # What differs least from the first choice comes first: there is no cost model of cuts.
        legal.sort(key=lambda choice: (choice.groups != first.groups) + _differs(choice, first))
        return Candidates((first, *legal), tuple(out))

    def describe(self, choice: Choice) -> str:
        return str(choice)

    def cycles(self, model: TimingModel, choice: Choice) -> int:
        assert isinstance(choice, AttentionChoice)
        generated, kv = attention_alone(self.machine, self.heads, choice)
        slot = model.load(generated.program)
        try:
            return sum(model.run(slot, 0, argument_memory(kv, 0, context)).cycles for context in self.contexts)
        finally:
            model.unload(slot)


def _differs(choice: AttentionChoice, other: AttentionChoice) -> int:
    weighing = choice.weigh_cuts != other.weigh_cuts or choice.query_by_query != other.query_by_query
    return (choice.score_cuts != other.score_cuts) + weighing


def space_of(machine: Machine, shape: GemvShape | HeadShape, contexts: Sequence[int]) -> Space:
    """The space of an operation's choices."""
    if isinstance(shape, GemvShape):
        return GemvSpace(machine, shape)
    return AttentionSpace(machine, shape, tuple(contexts))
