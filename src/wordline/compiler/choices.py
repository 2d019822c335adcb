"""Open choices: what a program may do in several ways, with different times and, where it says so, different rounding.

They are an input of the compiler: the cost model's first choices, or what a search found on the cycle model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wordline.compiler.integers import floor_log2
from wordline.machines import Machine


@dataclass(frozen=True, slots=True)
class Illegal:
    """Why a choice is out; ``rule`` is the limit or the rule behind it."""

    reason: str
    rule: str


Order = Literal["outputs", "inputs"]


@dataclass(frozen=True, slots=True)
class GemvShape:
    """Matrices [M_i, K] that share their input, M_i in ``outputs``.

    ``read_out``: the results are needed in bf16 as the banks read them out, so nothing may be added to them.
    """

    outputs: tuple[int, ...]
    k: int
    read_out: bool = False

    def __str__(self) -> str:
        return "+".join(map(str, self.outputs)) + f"x{self.k}" + (" read out" if self.read_out else "")


@dataclass(frozen=True, slots=True)
class GemvChoice:
    """How the banks go through the matrices of one GEMV.

    Attributes:
        group: accumulators in use between two read-outs.
        chunk: columns of the input that are in the buffer at one time.
        order: ``outputs``: a group goes through all chunks before the next one begins; ``inputs``: a chunk goes through
            all groups before the next one is put into the buffer, and the vector unit adds up what is read out.
        parts: runs of channels that K is split over; the vector unit adds up what they read out.
        padded: each group begins a DRAM row, so that its register visit hides under a row turn.
        stages: the additions are done in as many steps as hide under the banks (0), or in at most so many.
    """

    group: int
    chunk: int
    order: Order = "outputs"
    parts: int = 1
    padded: bool = False
    stages: int = 0

    def beside(self, plain: GemvChoice) -> str:
        """What differs from ``plain``, for people; nothing if nothing does."""
        told = {
            f"groups of {self.group}": self.group != plain.group,
            f"{self.chunk} columns at a time": self.chunk != plain.chunk,
            f"{self.order} outermost": self.order != plain.order,
            f"K in {self.parts} parts" if self.parts > 1 else "K not split": self.parts != plain.parts,
            "padded" if self.padded else "not padded": self.padded != plain.padded,
            _counted(self.stages, "stage") if self.stages else "all stages": self.stages != plain.stages,
        }
        return ", ".join(text for text, differs in told.items() if differs)


def plain_gemv(machine: Machine, *, parts: int = 1, indexed: bool = False) -> GemvChoice:
    """All accumulators, the whole buffer, outputs outermost.

    ``indexed``: rows are also fetched by number (embedding), so groups are a power of two.
    """
    accumulators = machine.bank_unit.accumulators
    group = 1 << floor_log2(accumulators) if indexed else accumulators
    return GemvChoice(group, machine.buffer.columns, parts=parts)


Cuts = tuple[int, ...]
"""Ends of the parts into which the pages of each channel are divided, in ``CUT``-ths of the pages in use; ascending,
the last one is ``CUT``. The first part has a page whenever there is one; later parts may be empty."""
CUT = 16
WHOLE: Cuts = (CUT,)


@dataclass(frozen=True, slots=True)
class HeadShape:
    """The attention of one layer: ``group`` query heads of ``head_dim`` on each KV head, ``max_context`` tokens."""

    kv_heads: int
    group: int
    head_dim: int
    max_context: int

    def __str__(self) -> str:
        return f"{self.kv_heads} KV heads of {self.head_dim}, {self.group} query heads each, {self.max_context} tokens"


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """How channels and pages are divided in attention.

    Attributes:
        groups: of channels, each with KV heads of its own; a power of two.
        score_cuts: parts of the pages in the first round's scores, after each of which the vector unit may begin.
        weigh_cuts: parts of the pages in the last round's weighing, each of which begins when the vector unit has the
            probabilities; not divided if accumulators cannot be kept from one part to the next.
        query_by_query: the last round is weighed one query head of each KV head after the other, instead of in parts:
            the vector unit has fewer passes and adds up one head while the banks weigh the next, which opens rows anew.
    """

    groups: int
    score_cuts: Cuts = WHOLE
    weigh_cuts: Cuts = WHOLE
    query_by_query: bool = False

    @property
    def cut(self) -> bool:
        """Whether pages are gone through in parts."""
        return self.score_cuts != WHOLE or self.weigh_cuts != WHOLE

    def __str__(self) -> str:
        def told(cuts: Cuts) -> str:
            return "whole" if cuts == WHOLE else "/".join(map(str, cuts))

        weighing = "query by query" if self.query_by_query else told(self.weigh_cuts)
        groups = _counted(self.groups, "channel group")
        return f"{groups}, scores {told(self.score_cuts)}, weighing {weighing}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@dataclass(frozen=True, slots=True)
class Choices:
    """What is chosen for a program. None, and a shape without an entry: the cost model's first choice."""

    gemv: Mapping[GemvShape, GemvChoice] = field(default_factory=dict)
    attention: AttentionChoice | None = None


FIRST_CHOICES = Choices()
"""The cost model's."""
