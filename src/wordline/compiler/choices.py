"""Open choices: what a program may do in several ways, with different times and, where it says so, different rounding.

They are an input of the compiler: the cost model's first choices, or what a search found on the cycle model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wordline.compiler.integers import floor_log2
from wordline.machines import Machine

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
            f"{self.stages} stages" if self.stages else "all stages": self.stages != plain.stages,
        }
        return ", ".join(text for text, differs in told.items() if differs)


def plain_gemv(machine: Machine, *, parts: int = 1, indexed: bool = False) -> GemvChoice:
    """All accumulators, the whole buffer, outputs outermost.

    ``indexed``: rows are also fetched by number (embedding), so groups are a power of two.
    """
    accumulators = machine.bank_unit.accumulators
    group = 1 << floor_log2(accumulators) if indexed else accumulators
    return GemvChoice(group, machine.buffer.columns, parts=parts)


@dataclass(frozen=True, slots=True)
class Choices:
    """What is chosen for a program; a shape without an entry takes the cost model's first choice."""

    gemv: Mapping[GemvShape, GemvChoice] = field(default_factory=dict)


FIRST_CHOICES = Choices()
"""The cost model's."""
