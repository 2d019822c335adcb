"""Schedules computed by hand, and that every constant of the machine that the model uses is pinned by one of them."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from tests.sim.timing.scenarios import SCENARIOS, machine_for, measure, schedule
from tests.support.ticking import tick
from wordline.machines import load_machine
from wordline.machines.gddr6_aim import Timing
from wordline.machines.schema import FUNCTIONS

#: Of commands that device programs do not have; the trace language of the published simulator does.
TRACE_LANGUAGE_ONLY = {"nRCDEWMUL", "nRCDRDAF"}

FLIPS: dict[str, int | float | bool] = {
    f"timing.{f.name}": getattr(load_machine("gddr6-aim-chip").timing, f.name) + 1
    for f in fields(Timing)
    if f.name not in TRACE_LANGUAGE_ONLY
}
FLIPS |= {f"vector_unit.latency.{name}": 30 for name in (*FUNCTIONS, "other")}
FLIPS |= {
    "scratch.landing_cycles": 11,
    "refresh.enabled": False,
    "refresh.pull_in": 4,
    "refresh.postpone": 4,
    "rules.commands_during_refresh": True,
    "rules.row_commands_in_register_mode": True,
    "rules.faw_enforced": True,
    "vector_unit.lanes": 8,
    "vector_unit.pass_overhead": 2,
    "link.lanes": 8,
    "link.gb_per_s_per_lane": 4.0,
    "link.latency_ns": 100.0,
    "clock.tck_ns": 0.25,
    "organisation.bank_groups": 2,
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_schedule(name: str) -> None:
    scenario = SCENARIOS[name]
    result = measure(scenario)
    assert schedule(result) == scenario.schedule
    if scenario.cycles is not None:
        assert result.cycles == scenario.cycles
    ticked = tick(machine_for(scenario), scenario.program)
    assert (ticked.cycles, ticked.trace) == (result.cycles, list(result.trace))


@pytest.mark.parametrize("field", FLIPS)
def test_every_constant_is_pinned(field: str) -> None:
    def changes(name: str) -> bool:
        scenario = SCENARIOS[name]
        if field in scenario.overrides:
            return False
        result = measure(scenario, {field: FLIPS[field]})
        return schedule(result) != scenario.schedule or scenario.cycles not in {None, result.cycles}

    assert any(changes(name) for name in SCENARIOS)


def test_the_documentation_names_every_constant() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "timing.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(n[A-Z]\w*)`", page))
    assert {f.name for f in fields(Timing)} <= named
    tests = "".join(p.read_text(encoding="utf-8") for p in Path(__file__).parent.glob("test_*.py"))
    pins = {
        pin for rows in re.findall(r"\| pin \|\n((?:\|.*\n)+)", page) for row in rows.splitlines() for pin in _pins(row)
    }
    assert len(pins) > 25
    assert [pin for pin in pins if pin not in SCENARIOS and f"def {pin}(" not in tests] == []


def _pins(row: str) -> list[str]:
    return re.findall(r"`([^`]+)`", row.split("|")[-2])
