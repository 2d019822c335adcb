"""The result of compiling a graph."""

from __future__ import annotations

from dataclasses import dataclass

from wordline.compiler.codegen import GeneratedProgram
from wordline.compiler.dispatch import Decision
from wordline.compiler.kernel.ir import Task
from wordline.compiler.lower import Lowered
from wordline.compiler.memory import ScratchPlan
from wordline.compiler.search import Found
from wordline.compiler.synchronise import Synchronisation
from wordline.graph.ir import Graph
from wordline.machines import Machine


@dataclass(frozen=True)
class Kept:
    """What a search found for one operation, and why the program does not use it (None: it does)."""

    found: Found
    dropped: str | None = None


@dataclass(frozen=True)
class Tuned:
    """What a search found for a program, in cycles of the whole step, at all ``contexts`` together."""

    contexts: tuple[int, ...]
    first_cycles: int
    cycles: int
    kept: tuple[Kept, ...]


@dataclass(frozen=True)
class Compiled:
    """A program, its plans, and everything that a report or a dump may ask for.

    ``tuned``: what a search found, None if there was none.
    """

    machine: Machine
    graph: Graph
    lowered: Lowered
    plan: ScratchPlan
    sync: Synchronisation
    generated: GeneratedProgram
    max_context: int
    tuned: Tuned | None = None

    @property
    def tasks(self) -> list[Task]:
        """Of all engines, in one legal sequential order."""
        return self.lowered.tasks

    @property
    def decisions(self) -> list[Decision]:
        """Which engine runs each operation, and why."""
        return self.lowered.decisions

    @property
    def attentions(self) -> tuple[str, ...]:
        """Labels of the layers' attentions."""
        return tuple(decision.op for decision in self.decisions if decision.kind == "attention")

    @property
    def weight_rows(self) -> int:
        """DRAM rows, from row 0 of every bank, that hold weights and vector parameters."""
        return self.lowered.weight_rows
