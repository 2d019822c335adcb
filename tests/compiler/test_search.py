"""Searching the open choices: order, budget, interruption, the store, and the decision by the whole step."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import SHAPE
from wordline.compiler.choices import AttentionChoice, Choices, GemvChoice, GemvShape, HeadShape
from wordline.compiler.compiled import Compiled
from wordline.compiler.pipeline import compile_graph, silent
from wordline.compiler.search import Budget, Found, search
from wordline.compiler.spaces import AttentionSpace, Candidates, GemvSpace, choice_text
from wordline.compiler.tuning import Tuning, _Steps, choices_of
from wordline.compiler.winners import Timed, Winners
from wordline.errors import WordlineError
from wordline.frontend.load import load_config
from wordline.machines import Machine, load_machine
from wordline.sim.timing import TimingModel

CHIP = load_machine("gddr6-aim-chip")
CARD = load_machine("gddr6-aim-card")
Times = dict[int, int | None]


class Fake:
    """An operation whose candidates are groups 1, 2, ...; the first of them is the cost model's choice."""

    kind = "gemv"
    bound = "L3"
    bound_cycles = 50.0

    def __init__(self, name: str, times: Times, calls: list[str], hook: Callable[[], None] = lambda: None) -> None:
        self.text, self.times, self.calls, self.hook = name, times, calls, hook

    def candidates(self) -> Candidates:
        return Candidates(tuple(GemvChoice(group, 64) for group in self.times), ())

    def describe(self, choice: Any) -> str:
        return f"group {choice.group}"

    def cycles(self, model: TimingModel, choice: Any) -> int:
        self.calls.append(f"{self.text}{choice.group}")
        self.hook()
        cycles = self.times[choice.group]
        if cycles is None:
            raise WordlineError("scratch-full", "no room")
        return cycles


def clock(step: float = 1.0) -> Callable[[], float]:
    """A clock that a look at it moves on."""
    ticks = itertools.count()
    return lambda: next(ticks) * step


def run(spaces: list[tuple[Fake, int]], seconds: float = 1e9, **options: Any) -> list[Found]:
    named = [(space, [f"{space.text}.{i}" for i in range(count)]) for space, count in spaces]
    return search(CHIP, named, Budget(seconds, options.pop("clock", lambda: 0.0)), silent, **options)


def test_first_choices_first_then_in_turn_and_the_longest_operation_ahead() -> None:
    calls: list[str] = []
    a, b = Fake("a", {1: 100, 2: 90, 3: 95}, calls), Fake("b", {1: 60, 2: 70, 3: None, 4: 60}, calls)
    found_a, found_b = run([(a, 1), (b, 3)])
    assert calls == ["a1", "b1", "b2", "a2", "b3", "a3", "b4"]
    assert (found_a.best, found_a.best_cycles, found_a.first_cycles) == (GemvChoice(2, 64), 90, 100)
    assert (found_a.gain, found_a.complete, found_a.percent_of_bound) == (10, True, pytest.approx(100 * 50 / 90))
    assert found_b.best == found_b.first  # an equal one is no reason to change
    assert [(t.text, t.cycles, t.failed) for t in found_b.trials][2] == ("group 3", None, "scratch-full: no room")


def test_a_search_that_runs_out_of_time_has_the_best_so_far() -> None:
    calls: list[str] = []
    spaces = [(Fake("a", {1: 100, 2: 90, 3: 80}, calls), 1), (Fake("b", {1: 50, 2: 40}, calls), 1)]
    (found_a, found_b) = run(spaces, 0.0)
    assert calls == ["a1", "b1"]  # even with no time at all it is known where the first choices stand
    assert (found_a.best_cycles, found_a.complete, found_b.best_cycles) == (100, False, 50)
    calls.clear()
    found = run(spaces, 6.0, clock=clock())
    assert 2 < len(calls) < 5
    assert found[0].best_cycles == 90
    assert run(spaces, 6.0, clock=clock()) == found


def test_ctrl_c_keeps_the_best_so_far_and_stores_it(tmp_path: Path) -> None:
    calls: list[str] = []

    def interrupt() -> None:
        if len(calls) == 4:
            raise KeyboardInterrupt

    a, b = Fake("a", {1: 100, 2: 90, 3: 80}, calls, interrupt), Fake("b", {1: 50, 2: 40}, calls, interrupt)
    store = Winners(tmp_path, pytest.fail)
    budget = Budget(1e9, lambda: 0.0)
    said: list[str] = []
    found = search(CHIP, [(a, ["a"]), (b, ["b"])], budget, said.append, store)
    assert calls == ["a1", "b1", "a2", "b2"]
    assert [f.best_cycles for f in found] == [90, 50]
    assert budget.left < 0
    assert "stopped" in said[-1]
    assert store.read("gemv", "a", CHIP) == {
        choice_text(GemvChoice(1, 64)): Timed(100),
        choice_text(GemvChoice(2, 64)): Timed(90),
    }
    interrupted_at_once = Fake("c", {1: 1}, ["", "", ""], interrupt)
    interrupted_at_once.calls = calls[:3]
    calls[3:] = []
    interrupted_at_once.calls = calls
    assert run([(interrupted_at_once, 1)]) == []


def test_what_is_stored_is_not_timed_again(tmp_path: Path) -> None:
    calls: list[str] = []
    times: Times = {1: 100, 2: None, 3: 80}
    store = Winners(tmp_path, pytest.fail)
    (once,) = run([(Fake("a", times, calls), 1)], 0.0, store=store)
    assert calls == ["a1"]
    (again,) = run([(Fake("a", times, calls), 1)], store=store)
    assert calls == ["a1", "a2", "a3"]
    assert (once.best_cycles, again.best_cycles, again.stored) == (100, 80, 1)
    (known,) = run([(Fake("a", times, calls), 1)], 0.0, store=store)
    assert calls == ["a1", "a2", "a3"]
    assert (known.best, known.trials, known.stored) == (again.best, again.trials, 3)
    other = load_machine("gddr6-aim-chip", {"timing.nRP": 30})
    assert store.read("gemv", "a", other) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        "[" * 10_000,
        "{}",
        '{"schema": 1}',
        "\x00",
        "CHANGED:schema:9",
        "CHANGED:operation:b",
        "CHANGED:compiler:x",
        "CHANGED:trials:[{}]",
        'CHANGED:trials:[{"choice": "c", "cycles": -1, "failed": null}]',
        'CHANGED:trials:[{"choice": "c", "cycles": 1.5, "failed": null}]',
        'CHANGED:trials:[{"choice": "c", "cycles": null, "failed": null}]',
        'CHANGED:trials:[{"choice": "c", "cycles": 0, "failed": null}]',
    ],
)
def test_a_malformed_file_is_told_of_and_replaced(text: str, tmp_path: Path) -> None:
    said: list[str] = []
    store = Winners(tmp_path, said.append)
    store.write("gemv", "a", CHIP, {choice_text(GemvChoice(1, 64)): Timed(100)})
    (file,) = tmp_path.iterdir()
    if text.startswith("CHANGED:"):
        _, key, value = text.split(":", 2)
        content = json.loads(file.read_text())
        content[key] = json.loads(value) if value[0] in "[0123456789" else value
        text = json.dumps(content)
    file.write_text(text)
    calls: list[str] = []
    (found,) = run([(Fake("a", {1: 70}, calls), 1)], store=store)
    assert found.best_cycles == 70
    assert len(said) == 1
    assert "malformed" in said[0]
    assert str(file) in said[0]
    assert store.read("gemv", "a", CHIP) == {choice_text(GemvChoice(1, 64)): Timed(70)}


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    (found,) = run([(Fake("a", {1: 70}, []), 1)], store=Winners(tmp_path / "file" / "x", said.append))
    assert found.best_cycles == 70
    assert said
    assert all("stored" in text for text in said)


# --- real operations ------------------------------------------------------------------------------------------------


def test_the_search_finds_more_than_the_cost_model() -> None:
    """In two parts the input's fills cost less than they seem to: 94.1 % of L3 becomes 95.0 %."""
    space = GemvSpace(CARD, GemvShape((4096,), 11008))
    (found,) = search(CARD, [(space, ["x"])], Budget(1e9, lambda: 0.0), silent)
    assert (found.first_cycles, found.best_cycles) == (22046, 21835)
    assert space.describe(found.best) == "K in 2 parts"
    assert found.complete
    assert found.percent_of_bound > 95.0


def test_attention_is_timed_at_all_contexts() -> None:
    machine = load_machine("gddr6-aim-card", {"organisation.channels": 4})
    heads = HeadShape(4, 2, 64, 2048)
    model = TimingModel(machine)
    one, two, both = (AttentionSpace(machine, heads, contexts) for contexts in ((500,), (2048,), (500, 2048)))
    first = one.candidates().legal[0]
    assert one.cycles(model, first) + two.cycles(model, first) == both.cycles(model, first)
    assert one.bound_cycles + two.bound_cycles == pytest.approx(both.bound_cycles)
    legal, out = both.candidates().legal, both.candidates().out
    assert {choice.groups for choice in legal if isinstance(choice, AttentionChoice)} == {1, 2, 4}
    assert not out
    assert AttentionSpace(machine, HeadShape(2, 2, 64, 2048), (500,)).candidates().out


@pytest.fixture(scope="module")
def graph() -> Any:
    fields = {**SHAPE, "hidden_size": 576, "intermediate_size": 1536, "model_type": "llama"}
    return load_config("tiny", {**fields, "tie_word_embeddings": False}).graph


FEW = load_machine("gddr6-aim-chip", {"bank_unit.accumulators": 5})


def compiled(graph: Any, machine: Machine = FEW, **options: Any) -> Compiled:
    return compile_graph(graph, machine, 256, **options)


def image(made: Compiled) -> bytes:
    return made.generated.program.to_bytes()


def test_no_time_gives_the_cost_models_program(graph: Any) -> None:
    made = compiled(graph, tuning=Tuning(0.0))
    assert image(made) == image(compiled(graph))
    assert made.tuned is not None
    assert made.tuned.cycles == made.tuned.first_cycles
    assert all(len(kept.found.trials) == 1 for kept in made.tuned.kept)


def test_searches_that_end_find_the_same_and_the_store_gives_the_same(
    graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Winners(tmp_path, pytest.fail)
    free = compiled(graph, tuning=Tuning(1e9))
    stored = compiled(graph, tuning=Tuning(1e9, store=store))
    assert image(free) == image(stored)
    assert free.tuned is not None
    assert free.tuned.cycles < free.tuned.first_cycles
    assert all(kept.found.complete for kept in free.tuned.kept)
    used = [kept.found for kept in free.tuned.kept if kept.dropped is None and kept.found.best != kept.found.first]
    assert used
    assert image(compiled(graph, choices=choices_of(used))) == image(free)
    monkeypatch.setattr(GemvSpace, "cycles", pytest.fail)
    monkeypatch.setattr(AttentionSpace, "cycles", pytest.fail)
    again = compiled(graph, tuning=Tuning(1e9, store=store))
    assert image(again) == image(free)


def test_what_is_faster_alone_is_used_only_if_the_step_is_faster(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step decides: all that was found, without some of it, or some of it alone."""
    first = compiled(graph)
    shapes = list(first.lowered.gemvs)[:2]
    parts = {shape: GemvChoice(5, 64, stages=0, padded=True) for shape in shapes}
    found = [
        Found(GemvSpace(FEW, shape), ("op",), first.lowered.gemvs[shape].choice, 100, choice, 90 + i, (), 2, 0)
        for i, (shape, choice) in enumerate(parts.items())
    ]

    def decided(cycles: dict[tuple[bool, bool], int], seconds: float = 1e9) -> tuple[int, list[str | None]]:
        def timed(_: _Steps, made: Compiled) -> int:
            a, b = (made.lowered.gemvs[shape].choice.padded for shape in shapes)
            return cycles[a, b]

        monkeypatch.setattr(_Steps, "_cycles", timed)

        def compile_with(choices: Choices) -> Compiled:
            return compiled(graph, choices=choices)

        steps = _Steps(first, (256,), compile_with, Budget(seconds, lambda: 0.0), silent)
        dropped = steps.decide(found)
        return steps.best_cycles, [dropped.get(id(f)) for f in found]

    none, a, b, both = (False, False), (True, False), (False, True), (True, True)
    assert decided({none: 9, both: 5, a: 6, b: 6}) == (5, [None, None])
    assert decided({none: 9, both: 5, a: 6, b: 4}) == (4, ["the step is faster without it", None])
    assert decided({none: 9, both: 10, a: 8, b: 9}) == (8, [None, "the step takes 10 cycles with it, 8 without"])
    assert decided({none: 9, both: 10, a: 9, b: 9})[0] == 9
    assert decided({none: 9, both: 10, a: 1, b: 1}, 0.0) == (9, ["not tried in the step: the time was up"] * 2)
    monkeypatch.setattr("wordline.compiler.tuning.choices_of", _raise)
    steps, dropped = decided({none: 9})
    assert steps == 9
    assert dropped == ["the step cannot be compiled with it: no room"] * 2


def _raise(_: Any) -> Choices:
    raise WordlineError("scratch-full", "no room\nat all")
