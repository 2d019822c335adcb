"""The native model equals the ticking reference, its closed forms equal single steps, and shared channels equal all."""

from __future__ import annotations

import functools

import pytest

from tests.support.ticking import tick
from tests.support.timing_programs import random_program
from wordline.machines import Machine, load_machine
from wordline.sim.timing import TimingModel

SHORT = {"timing.nREFI": 1300, "timing.nRFC": 120}
VARIANTS: tuple[dict[str, str | int | float | bool], ...] = (
    {},
    {**SHORT, "refresh.pull_in": 0, "refresh.postpone": 0},
    SHORT,
    {**SHORT, "refresh.pull_in": 8, "refresh.postpone": 8},
    {"refresh.enabled": False},
    {**SHORT, "rules.faw_enforced": True, "rules.commands_during_refresh": True},
    {
        **SHORT,
        "rules.row_commands_in_register_mode": True,
        "timing.nCCDL": 3,
        "timing.nRRDL": 13,
        "timing.nRTP": 40,
        "timing.nMAC2TMOD": 7,
        "timing.nCMD2TMOD": 3,
    },
)


@functools.cache
def model(variant: int) -> tuple[Machine, TimingModel]:
    machine = load_machine("gddr6-aim-chip", VARIANTS[variant])
    return machine, TimingModel(machine)


def compare(seed: int) -> int:
    """Checks one random program; returns the refreshes of its run."""
    machine, native = model(seed % len(VARIANTS))
    memory = [(seed * 7 + i * 3) % 5 for i in range(8)]
    program = random_program(seed)
    slot = native.load(program)
    try:
        result = native.run(slot, 0, memory, trace=True)
        stepped = native.run(slot, 0, memory, trace=True, step_bursts=True)
        shared = native.run(slot, 0, memory)
    finally:
        native.unload(slot)

    expected = tick(machine, program, memory)
    assert list(result.trace) == expected.trace, seed
    assert result.cycles == expected.cycles, seed
    assert [c.end for c in result.channels] == expected.ends, seed
    assert [c.refresh_charge for c in result.channels] == expected.charges, seed
    assert [c.refreshes for c in result.channels] == expected.refreshes, seed
    assert [s.end for s in result.streams] == expected.stream_ends, seed

    for other in (stepped, shared):
        assert other.cycles == result.cycles, seed
        assert other.channels == result.channels, seed
        for one, two in zip(other.streams, result.streams, strict=True):
            assert (one.causes == two.causes).all(), seed
            assert (one.busy == two.busy).all(), seed
    assert stepped.trace == result.trace, seed

    for number, channel in enumerate(result.channels):
        assert sum(channel.causes.values()) == result.cycles, seed
        issued = [e.command for e in result.trace if e.channel == number]
        assert channel.commands == {name: issued.count(name) for name in channel.commands}, seed
    per_instruction = result.streams[0].causes.sum()
    outside = sum(c.causes["tail"] + c.refresh_charge for c in result.channels)
    assert per_instruction + outside == result.cycles * len(result.channels), seed
    return sum(c.refreshes for c in result.channels)


@pytest.mark.parametrize("batch", range(8))
def test_random_programs(batch: int) -> None:
    assert sum(compare(seed) for seed in range(100 * batch, 100 * batch + 100)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(20))
def test_many_random_programs(batch: int) -> None:
    assert sum(compare(seed) for seed in range(10_000 + 250 * batch, 10_250 + 250 * batch)) > 50
