"""Searching the open choices: candidates are compiled alone and timed on the cycle model, under a budget.

The order is fixed: every operation's first choice, then each operation's next most promising candidate in turn, the
operation that takes most of the step first. So a search that is stopped has at any moment the best of what it timed,
and one that ends by itself finds the same whenever it is repeated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from wordline.compiler.spaces import Choice, Space, choice_text
from wordline.compiler.winners import Timed, Winners
from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.sim.timing import TimingModel

Progress = Callable[[str], None]


@dataclass
class Budget:
    """Seconds of searching; ``clock`` tells the time. Once ``stopped``, it is used up."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    stopped: bool = False
    _start: float = field(init=False)

    def __post_init__(self) -> None:
        self._start = self.clock()

    @property
    def left(self) -> float:
        """Seconds left, negative if it is overdrawn."""
        return -1.0 if self.stopped else self._start + self.seconds - self.clock()


@dataclass(frozen=True)
class Trial:
    """A candidate that was timed; ``failed``: why it could not be compiled."""

    choice: Choice
    text: str
    cycles: int | None
    failed: str | None


@dataclass(frozen=True)
class Found:
    """What a search found for one operation.

    Attributes:
        space: the operation's choices; ``operations`` are those of the program that have this shape.
        first, first_cycles: the cost model's first choice.
        best, best_cycles: the fastest; the first choice unless another one is faster.
        trials: in the order in which they were tried; of ``candidates`` that are legal.
        stored: how many of their times were known from an earlier search.
    """

    space: Space
    operations: tuple[str, ...]
    first: Choice
    first_cycles: int
    best: Choice
    best_cycles: int
    trials: tuple[Trial, ...]
    candidates: int
    stored: int

    @property
    def percent_of_bound(self) -> float:
        """How much of the bound the best one reaches."""
        return 100 * self.space.bound_cycles / self.best_cycles

    @property
    def first_percent_of_bound(self) -> float:
        """How much of the bound the first choice reaches."""
        return 100 * self.space.bound_cycles / self.first_cycles

    @property
    def complete(self) -> bool:
        """Whether every legal candidate was tried."""
        return len(self.trials) == self.candidates

    @property
    def gain(self) -> int:
        """Cycles that the best one saves in a step, if all operations behaved as they do alone."""
        return (self.first_cycles - self.best_cycles) * len(self.operations)


class _State:
    """One operation in a search."""

    def __init__(self, machine: Machine, space: Space, operations: Sequence[str], store: Winners | None) -> None:
        self.machine, self.space, self.operations, self.store = machine, space, tuple(operations), store
        self.legal = space.candidates().legal
        known = store.read(space.kind, space.text, machine) if store is not None else {}
        texts = [choice_text(choice) for choice in self.legal]
        self.times = {text: known[text] for text in texts if text in known}
        self.stored = len(self.times)
        self.waiting = [(choice, text) for choice, text in zip(self.legal, texts, strict=True) if text not in known]

    def try_next(self, model: TimingModel) -> None:
        choice, text = self.waiting[0]
        try:
            timed = Timed(self.space.cycles(model, choice))
        except WordlineError as error:
            timed = Timed(None, f"{error.code}: {error.what}")
        self.times[text] = timed
        self.waiting.pop(0)

    @property
    def first_tried(self) -> bool:
        return choice_text(self.legal[0]) in self.times

    @property
    def first_cycles(self) -> int | None:
        timed = self.times.get(choice_text(self.legal[0]))
        return None if timed is None else timed.cycles

    def best(self) -> tuple[Choice, int] | None:
        """The fastest so far, the more promising one of equals; None before the first choice is timed."""
        if self.first_cycles is None:
            return None
        trials = [(choice, self.times.get(choice_text(choice))) for choice in self.legal]
        timed = [(choice, t.cycles) for choice, t in trials if t is not None and t.cycles is not None]
        return min(timed, key=lambda pair: pair[1])

    def found(self) -> Found | None:
        best = self.best()
        if best is None or self.first_cycles is None:
            return None
        trials = []
        for choice in self.legal:
            text = choice_text(choice)
            if text in self.times:
                timed = self.times[text]
                trials.append(Trial(choice, self.space.describe(choice), timed.cycles, timed.failed))
        return Found(
            self.space,
            self.operations,
            self.legal[0],
            self.first_cycles,
            *best,
            tuple(trials),
            len(self.legal),
            self.stored,
        )

    def save(self) -> None:
        if self.store is not None and len(self.times) > self.stored:
            self.store.write(self.space.kind, self.space.text, self.machine, self.times)

    def report(self) -> str:
        text = f"searching {self.space.kind} {self.space.text}: {len(self.times)} of {len(self.legal)} timed"
        best = self.best()
        if best is None:
            return text
        percent = 100 * self.space.bound_cycles / best[1]
        return f"{text}, best {best[1]:,} cycles ({percent:.1f} % of {self.space.bound})"


def search(
    machine: Machine,
    spaces: Sequence[tuple[Space, Sequence[str]]],
    budget: Budget,
    progress: Progress,
    store: Winners | None = None,
    *,
    reserve: float = 0.0,
) -> list[Found]:
    """Search each space, with the operations of the program that it stands for, until ``reserve`` seconds are left.

    What was timed is stored even if the search is stopped. Ctrl-C stops it (and the budget), and what was found until
    then is the result. An operation whose first choice was not timed, or cannot be compiled, is left out.
    """
    states: list[_State] = []
    model = TimingModel(machine)
    told: float | None = None
    try:
        for space, operations in spaces:
            states.append(_State(machine, space, operations, store))
        for index, state in enumerate(_turns(states)):
            # Every first choice is timed, or nothing could be said about what the search is worth.
            if index < len(states):
                if state.first_tried:
                    continue
            elif budget.left <= reserve:
                break
            state.try_next(model)
            if told is None or told - budget.left >= REPORT_EVERY:
                told = budget.left
                progress(state.report())
    except KeyboardInterrupt:
        budget.stopped = True
        progress("the search was stopped: the best so far counts")
    for state in states:
        state.save()
    return [found for found in (state.found() for state in states) if found is not None]


REPORT_EVERY = 1.0
"""Seconds between reports of progress."""


def _turns(states: Sequence[_State]) -> Iterator[_State]:
    """Whose turn it is: each once for the first choice, then round and round, as long as somebody has a candidate."""
    yield from states
    ordered = sorted(states, key=lambda s: -(s.first_cycles or 0) * len(s.operations))
    while any(state.waiting for state in ordered):
        yield from (state for state in ordered if state.waiting)
