"""The result of compiling a graph."""

from __future__ import annotations

from dataclasses import dataclass

from wordline.compiler.codegen import GeneratedProgram
from wordline.compiler.dispatch import Decision
from wordline.compiler.kernel.ir import Task
from wordline.compiler.lower import Lowered
from wordline.compiler.memory import ScratchPlan
from wordline.compiler.synchronise import Synchronisation
from wordline.graph.ir import Graph
from wordline.machines import Machine


@dataclass(frozen=True)
class Compiled:
    """A program, its plans, and everything that a report or a dump may ask for."""

    machine: Machine
    graph: Graph
    lowered: Lowered
    plan: ScratchPlan
    sync: Synchronisation
    generated: GeneratedProgram
    max_context: int

    @property
    def tasks(self) -> list[Task]:
        """Of all engines, in one legal sequential order."""
        return self.lowered.tasks

    @property
    def decisions(self) -> list[Decision]:
        """Which engine runs each operation, and why."""
        return self.lowered.decisions

    @property
    def weight_rows(self) -> int:
        """DRAM rows, from row 0 of every bank, that hold weights and vector parameters."""
        return self.lowered.weight_rows
