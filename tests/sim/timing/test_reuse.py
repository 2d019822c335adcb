"""What one channel, layer or submission takes over from another equals what it would have done itself."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.sim.timing.test_against_ticking import VARIANTS, model
from tests.support.timing_programs import layered_program, random_program, stepwise_program
from wordline.isa.program import Program
from wordline.sim.timing import TimingModel, TimingResult


def equal(one: TimingResult, other: TimingResult) -> bool:
    """Equal in everything that is counted."""
    return (
        (one.cycles, one.channels) == (other.cycles, other.channels)
        and [s.end for s in one.streams] == [s.end for s in other.streams]
        and all(np.array_equal(a.causes, b.causes) for a, b in zip(one.streams, other.streams, strict=True))
        and all(np.array_equal(a.busy, b.busy) for a, b in zip(one.streams, other.streams, strict=True))
    )


def submissions(seed: int, program: Program, native: TimingModel, count: int) -> int:
    """Times some submissions with arguments that change a little; returns the segments that were taken over."""
    r = random.Random(seed)
    words = [r.randint(0, 9) for _ in range(4)] + [r.randint(0, 3) for _ in range(16)]
    slot = native.load(program)
    taken = 0
    try:
        for number in range(count):
            base = r.choice([0, 0, 0, 1])
            again = native.run(slot, base, words)
            alone = native.run(slot, base, words, share_channels=False)
            assert alone.shared_segments == 0
            assert equal(again, alone), (seed, number)
            taken += again.shared_segments
            words[r.randrange(4 if r.random() < 0.8 else len(words))] += r.choice([-1, 1])
            words = [min(max(word, 0), 12) for word in words]
    finally:
        native.unload(slot)
    return taken


@pytest.mark.parametrize("batch", range(6))
def test_layers_and_submissions(batch: int) -> None:
    seeds = range(70 * batch, 70 * batch + 70)
    taken = [submissions(seed, layered_program(seed), model(seed % len(VARIANTS))[1], 6) for seed in seeds]
    assert sum(number > 0 for number in taken) > 60


def test_a_refresh_overdue_after_a_run() -> None:
    # One that closes rows under a wait looks further back than what settles after the run before.
    submissions(3109, layered_program(3109, layers=8), model(3109 % len(VARIANTS))[1], 8)


@pytest.mark.parametrize("make_program", [random_program, stepwise_program])
def test_any_program(make_program: Callable[[int], Program]) -> None:
    for seed in range(200):
        submissions(seed, make_program(seed), model(seed % len(VARIANTS))[1], 3)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(20))
def test_many_layers_and_submissions(batch: int) -> None:
    for seed in range(1000 + 150 * batch, 1150 + 150 * batch):
        submissions(seed, layered_program(seed, layers=8), model(seed % len(VARIANTS))[1], 8)
