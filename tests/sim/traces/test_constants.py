"""A wrong constant is noticed: each one that a profile uses changes the schedule of some trace, and no other does."""

from __future__ import annotations

import random
import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.support.gemv_traces import gemv_trace
from tests.support.random_traces import random_trace
from wordline.machines import load_machine
from wordline.machines.gddr6_aim import AimSimulator, Timing
from wordline.machines.schema import Scalar
from wordline.sim.traces import ScheduledCommand, TraceModel

BASE: dict[str, Scalar] = {"organisation.channels": 4, "aim_simulator.refresh": True}

#: Reads whose rows collide, and then more writes than may wait.
CROWDED = [f"R MEM 0 0 {row}" for row in range(6)] + [f"W MEM 0 {bank % 16} 9" for bank in range(30)]
TRACES = (
    [random_trace(random.Random(seed), lines=40, ordinary=0.5 * (seed % 3)).encode() for seed in range(120)]
    + ["\n".join([*CROWDED[:wait], *CROWDED[6:], "AiM SYNC", "AiM EOC"]).encode() for wait in (1, 3, 6)]
    + [gemv_trace(512, 2048, 4, order).encode() for order in ("k", "out")]
)

#: What the profile aim-simulator replaces or ignores.
ELSEWHERE = {"nRRDS", "nRRDL", "nFAW", "nMAC2TMOD", "nCMD2TMOD"}
CHANGED: dict[str, Scalar] = {
    "queue_requests": 32,
    "writes_to_start": 24.0,
    "writes_to_stop": 5.0,
    "lut_row": 1000,
    "refresh": False,
    "blocking_reads": False,
    "read_forwarding": False,
    "overtaking": False,
    "reversed_mask": False,
    "nRRDS": 7,
    "nRRDL": 8,
}
FIELDS = [f"timing.{f.name}" for f in fields(Timing)] + [f"aim_simulator.{f.name}" for f in fields(AimSimulator)]


def schedules(settings: dict[str, Scalar], profile: str) -> list[tuple[int, tuple[ScheduledCommand, ...]]]:
    model = TraceModel(load_machine("gddr6-aim-card", settings), profile)
    times = (model.run(text, record=100_000) for text in TRACES)
    return [(time.cycles, time.schedule) for time in times]


PUBLISHED = {profile: schedules(BASE, profile) for profile in ("aim-simulator", "corrected")}


def flipped(path: str) -> dict[str, Scalar]:
    section, name = path.split(".")
    if section == "aim_simulator":
        return BASE | {path: CHANGED[name]}
    value = getattr(load_machine("gddr6-aim-card").timing, name)
    return BASE | {path: value + (5 if value else 1)}


@pytest.mark.parametrize("path", FIELDS)
def test_the_simulator_uses_it_or_not(path: str) -> None:
    changes = schedules(flipped(path), "aim-simulator") != PUBLISHED["aim-simulator"]
    assert changes == (path.removeprefix("timing.") not in ELSEWHERE)


#: What profile corrected does not use in traces: activations follow each other closely only if a program opens rows
#: ahead, the limit of activation power is off, and the quirks are the simulator's.
NOT_OURS = {"timing.nRRDS", "timing.nRRDL", "timing.nFAW"} | {
    f"aim_simulator.{f.name}" for f in fields(AimSimulator) if f.name != "lut_row"
}


@pytest.mark.parametrize("path", FIELDS)
def test_our_own_rules_use_it_or_not(path: str) -> None:
    changes = schedules(flipped(path), "corrected") != PUBLISHED["corrected"]
    assert changes == (path not in NOT_OURS)


def test_the_documentation_names_every_switch_and_test() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "timing.md").read_text(encoding="utf-8")
    section = page[page.index("## 10.") :]
    named = set(re.findall(r"`(?:aim_simulator\.)?(\w+)`", section))
    assert {f.name for f in fields(AimSimulator)} <= named
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    pins = [name for name in named if name.startswith("test_")]
    assert len(pins) >= 6
    assert [name for name in pins if f"def {name}(" not in tests] == []
