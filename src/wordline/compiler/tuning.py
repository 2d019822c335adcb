"""A program with the choices that a search found, where they make the whole step faster.

What is fastest alone may not be fastest in the step, where other engines work beside it and scratch is shared. So the
step is compiled and timed with everything that was found, and with some of it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wordline.compiler.arguments import argument_memory
from wordline.compiler.choices import AttentionChoice, Choices, GemvChoice
from wordline.compiler.compiled import Compiled, Kept, Tuned
from wordline.compiler.search import Budget, Found, Progress, search
from wordline.compiler.spaces import AttentionSpace, GemvSpace, Space
from wordline.compiler.winners import Winners
from wordline.errors import WordlineError
from wordline.sim.timing import TimingModel


@dataclass(frozen=True)
class Tuning:
    """How to search: for how many seconds, at which contexts (none: the longest), with times stored where."""

    seconds: float
    contexts: tuple[int, ...] = ()
    store: Winners | None = None
    clock: Callable[[], float] = time.monotonic


def tune(first: Compiled, tuning: Tuning, compile_with: Callable[[Choices], Compiled], progress: Progress) -> Compiled:
    """The fastest program found, with what was found; ``first`` has the cost model's first choices.

    ``compile_with`` compiles the same graph with other choices. Compiling once with everything found is not limited by
    the budget; all else is.
    """
    contexts = tuning.contexts or (first.max_context,)
    budget = Budget(tuning.seconds, tuning.clock)
    steps = _Steps(first, contexts, compile_with, budget, progress)
    found = search(first.machine, _spaces(first, contexts), budget, progress, tuning.store, reserve=tuning.seconds / 4)
    faster = sorted((f for f in found if f.best != f.first), key=lambda f: -f.gain)
    dropped = steps.decide(faster)
    kept = tuple(Kept(f, dropped.get(id(f))) for f in found)
    tuned = Tuned(contexts, steps.first_cycles, steps.best_cycles, kept)
    return dataclasses.replace(steps.best, tuned=tuned)


def _spaces(first: Compiled, contexts: tuple[int, ...]) -> list[tuple[Space, tuple[str, ...]]]:
    lowered, machine = first.lowered, first.machine
    spaces: list[tuple[Space, tuple[str, ...]]] = [
        (GemvSpace(machine, shape), chosen.operations) for shape, chosen in lowered.gemvs.items()
    ]
    return [*spaces, (AttentionSpace(machine, lowered.heads, contexts), first.attentions)]


def choices_of(found: Iterable[Found]) -> Choices:
    """The best of each as input of the compiler."""
    gemv, attention = {}, None
    for f in found:
        if isinstance(f.space, GemvSpace) and isinstance(f.best, GemvChoice):
            gemv[f.space.shape] = f.best
        elif isinstance(f.best, AttentionChoice):
            attention = f.best
    return Choices(gemv, attention)


class _Steps:
    """Whole steps, compiled and timed; ``best`` is the fastest so far."""

    def __init__(
        self,
        first: Compiled,
        contexts: tuple[int, ...],
        compile_with: Callable[[Choices], Compiled],
        budget: Budget,
        progress: Progress,
    ) -> None:
        self._contexts, self._compile, self._budget, self._progress = contexts, compile_with, budget, progress
        self._model = TimingModel(first.machine)
        self.best, self.first_cycles = first, self._cycles(first)
        self.best_cycles = self.first_cycles

    def decide(self, faster: list[Found]) -> dict[int, str]:
        """Try what is faster alone, most gain first; returns why some of it is not used, by ``id``."""
        dropped = {id(f): "not tried in the step: the time was up" for f in faster}
        if not faster:
            return dropped
        try:
            everything = self._try(faster)
            if everything is None:
                for f in faster:
                    dropped.pop(id(f))
                self._without(faster, dropped)
            else:
                self._one_by_one(faster, dropped, everything)
        except KeyboardInterrupt:
            self._budget.stopped = True
            self._progress("the search was stopped: the best step so far counts")
        return dropped

    def _one_by_one(self, faster: list[Found], dropped: dict[int, str], reason: str) -> None:
        """All together are no gain: add one after the other to what is."""
        used: list[Found] = []
        for f in faster:
            if len(faster) == 1:
                dropped[id(f)] = reason
            elif self._budget.left > 0:
                why = self._try([*used, f])
                if why is None:
                    used.append(f)
                    dropped.pop(id(f))
                else:
                    dropped[id(f)] = why

    def _without(self, faster: list[Found], dropped: dict[int, str]) -> None:
        """All together are a gain: leave out one after the other, as long as there is time."""
        used = list(faster)
        for f in faster:
            if len(used) > 1 and self._budget.left > 0 and self._try([g for g in used if g is not f]) is None:
                used.remove(f)
                dropped[id(f)] = "the step is faster without it"

    def _try(self, used: list[Found]) -> str | None:
        """None if the step is the fastest so far with what is ``used``, else why it is not."""
        self._progress(f"compiling the step with {len(used)} of the choices found")
        try:
            compiled = self._compile(choices_of(used))
            cycles = self._cycles(compiled)
        except WordlineError as error:
            return f"the step cannot be compiled with it: {error.what.splitlines()[0]}"
        if cycles >= self.best_cycles:
            return f"the step takes {cycles:,} cycles with it, {self.best_cycles:,} without"
        self.best, self.best_cycles = compiled, cycles
        return None

    def _cycles(self, compiled: Compiled) -> int:
        slot = self._model.load(compiled.generated.program)
        try:
            memories = (argument_memory(compiled.lowered.kv, compiled.weight_rows, c) for c in self._contexts)
            return sum(self._model.run(slot, 0, memory).cycles for memory in memories)
        finally:
            self._model.unload(slot)
