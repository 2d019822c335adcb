"""Random traces on random machines: both profiles equal the models that ask everything in every cycle."""

from __future__ import annotations

import random

import pytest

from tests.support.bank_states import open_cycles
from tests.support.random_traces import random_simulator, random_trace, repeating_trace
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
    counted = model.run(text.encode())
    assert (counted.cycles, counted.commands) == (time.cycles, time.commands), f"seed {seed}, {machine.name}"
    commands = [(e.cycle, e.channel, e.command, e.bank) for e in time.schedule]
    opened = sum(open_cycles(commands, c, 16, time.cycles) for c in range(machine.organisation.channels))
    assert counted.open_cycles == time.open_cycles == opened, f"seed {seed}, {machine.name}"


def compare_repetition(seed: int) -> None:
    """What is counted because it repeats is as what is simulated; recording a schedule simulates all of it."""
    rng = random.Random(seed)
    machine = load_machine(random_simulator(rng).name, {"timing.nREFI": rng.choice((1500, 3333, 20_000))})
    text = repeating_trace(rng)
    model = TraceModel(machine, "aim-simulator")
    counted, simulated = model.run(text.encode()), model.run(text.encode(), record=RECORD)
    assert (counted.cycles, counted.commands) == (simulated.cycles, simulated.commands), f"seed {seed}, {machine.name}"
    states = [(time.open_cycles, time.refresh_cycles) for time in (counted, simulated)]
    assert states[0] == states[1], f"seed {seed}, {machine.name}"
    if seed % 40 == 0:
        assert simulated.cycles == tick(machine, text).cycles, f"seed {seed}, {machine.name}"


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
    if not machine.refresh.enabled:  # else what is charged for refresh at the end comes between
        commands = [(e.cycle, e.channel, e.command, e.bank) for e in time.schedule]
        opened = sum(open_cycles(commands, c, 16, time.cycles) for c in range(machine.organisation.channels))
        assert (time.open_cycles, time.refresh_cycles) == (opened, 0), f"seed {seed}, {machine.name}"


@pytest.mark.parametrize("group", range(GROUPS))
def test_simulator(group: int) -> None:
    for seed in range(NORMAL):
        compare_simulator(10_000 * group + seed)


@pytest.mark.parametrize("group", range(GROUPS))
def test_corrected(group: int) -> None:
    for seed in range(NORMAL):
        compare_corrected(10_000 * group + seed)


REPETITIVE = {
    "registers of a channel whose row stays open": [
        "AiM MAC_ABK 4 0x2 5",
        *["AiM WR_BIAS 0 0x3", "AiM MAC_ABK 64 0x1 0", "AiM RD_MAC 0 0x3"] * 20,
        "AiM MAC_ABK 64 0x2 5",
    ],
    "rows of two channels in turn": [
        line
        for row in range(20)
        for line in (f"AiM MAC_ABK 8 0x1 {row // 4}", "AiM MAC_ABK 8 0x2 99", "AiM RD_MAC 0 0x3")
    ],
    "rows that return": [
        line for row in [0, 1] * 20 for line in ("AiM MAC_ABK 8 0x1 0", f"AiM MAC_ABK 8 0x1 {row}", "AiM RD_MAC 0 0x1")
    ],
}


@pytest.mark.parametrize("case", REPETITIVE)
def test_what_only_seems_to_repeat(case: str) -> None:
    text = "\n".join([*REPETITIVE[case], "AiM EOC", ""])
    machine = load_machine("gddr6-aim-card", {"organisation.channels": 2})
    counted = TraceModel(machine, "aim-simulator").run(text.encode())
    wanted = tick(machine, text)
    assert (counted.cycles, sum(counted.commands.values())) == (wanted.cycles, len(wanted.trace))


@pytest.mark.parametrize("group", range(GROUPS))
def test_repetition(group: int) -> None:
    for seed in range(NORMAL * 5):
        compare_repetition(10_000 * group + seed)


@pytest.mark.slow
@pytest.mark.parametrize("group", range(GROUPS))
def test_repetition_many(group: int) -> None:
    for seed in range(NORMAL * 5, MANY * 2):
        compare_repetition(10_000 * group + seed)


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
