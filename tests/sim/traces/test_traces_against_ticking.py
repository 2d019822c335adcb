"""Random traces on random machines: both profiles equal the models that ask everything in every cycle."""

from __future__ import annotations

import random

import pytest

from tests.support.random_traces import random_simulator, random_trace
from tests.support.ticking_aim import tick
from tests.support.ticking_corrected import tick_trace
from wordline.machines import load_machine
from wordline.sim.traces import TraceModel

RECORD = 1_000_000
GROUPS = 6
NORMAL, MANY = 40, 700  # traces of a group in the normal tier, and in the slow one


def compare_simulator(seed: int) -> None:
    rng = random.Random(seed)
    machine, text = random_simulator(rng), random_trace(rng, ordinary=rng.choice((0, 0.3, 0.6)))
    wanted = tick(machine, text)
    model = TraceModel(machine, "aim-simulator")
    for stepped in (False, True):
        time = model.run(text.encode(), record=RECORD, step_bursts=stepped)
        assert time.cycles == wanted.cycles, f"seed {seed}, {machine.name}"
        assert [tuple(e) for e in time.schedule] == wanted.trace, f"seed {seed}, {machine.name}"
    assert sum(time.commands.values()) == len(wanted.trace)


def compare_corrected(seed: int) -> None:
    rng = random.Random(seed)
    rules = {name: rng.random() < 0.3 for name in ("faw_enforced", "row_commands_in_register_mode")}
    settings: dict[str, int | bool] = {f"rules.{name}": value for name, value in rules.items()}
    settings["rules.commands_during_refresh"] = rng.random() < 0.3
    settings["refresh.enabled"] = rng.random() < 0.6
    settings["refresh.postpone"] = rng.choice((0, 1))
    settings["timing.nREFI"] = rng.choice((1500, 3333))
    machine = load_machine(random_simulator(rng).name, settings)
    text = random_trace(rng, ordinary=rng.choice((0, 0.3, 0.6)))
    wanted = tick_trace(machine, text)
    model = TraceModel(machine, "corrected")
    for stepped in (False, True):
        time = model.run(text.encode(), record=RECORD, step_bursts=stepped)
        assert time.cycles == wanted.cycles, f"seed {seed}, {machine.name}"
        assert [tuple(e)[:3] for e in time.schedule] == [e[:3] for e in wanted.trace], f"seed {seed}, {machine.name}"


@pytest.mark.parametrize("group", range(GROUPS))
def test_simulator(group: int) -> None:
    for seed in range(NORMAL):
        compare_simulator(10_000 * group + seed)


@pytest.mark.parametrize("group", range(GROUPS))
def test_corrected(group: int) -> None:
    for seed in range(NORMAL):
        compare_corrected(10_000 * group + seed)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_simulator_many(group: int) -> None:
    for seed in range(NORMAL, MANY):
        compare_simulator(10_000 * group + seed)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_corrected_many(group: int) -> None:
    for seed in range(NORMAL, MANY):
        compare_corrected(10_000 * group + seed)
