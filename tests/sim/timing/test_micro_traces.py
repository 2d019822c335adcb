"""Where both timing profiles must agree, the schedules of the published AiM simulator hold, command for command."""

from __future__ import annotations

import pytest

from tests.support.micro_traces import micro_instructions, micro_schedules, micro_totals
from tests.support.timing_programs import program
from wordline.machines import load_machine
from wordline.sim.timing import TimingResult, time_program

#: What that simulator's total adds to the cycle of the last command.
TOTAL_AFTER = {"MAC16": 3, "MAC": 3, "RDCP": 3, "WRCP": 3, "WRGB": 5, "WRMAC16": 5, "RDMAC16": 5}

#: Programs that the corrected profile times differently on purpose, with the rule that makes the difference.
DIFFERENT = {
    "rd_mac_2": "read-outs do not block",
    "copy_bkgb_gbbk": "a copied column has to land in the buffer before it is copied on",
}

PROGRAMS = {name: instrs for name in micro_totals() if (instrs := micro_instructions(name))}


def run(name: str) -> TimingResult:
    card = load_machine("gddr6-aim-card", {"refresh.enabled": False})
    mask = 0xFFFFFFFF if name == "mac_64_ch32" else 1
    return time_program(card, program(PROGRAMS[name], mask=mask), trace=True)


def test_enough_programs() -> None:
    assert len(PROGRAMS) == 32


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - DIFFERENT.keys()))
def test_equal(name: str) -> None:
    result = run(name)
    commands = [entry for entry in result.trace if entry.channel == 0]
    assert [(e.cycle, e.command, e.bank) for e in commands] == micro_schedules()[name]
    assert commands[-1].cycle + TOTAL_AFTER[commands[-1].command] == micro_totals()[name]


def test_different_on_purpose() -> None:
    assert [(e.cycle, e.command) for e in run("rd_mac_2").trace] == [(0, "TMOD"), (32, "RDMAC16"), (34, "RDMAC16")]
    theirs = micro_schedules()["copy_bkgb_gbbk"]
    ours = [(e.cycle, e.command, e.bank) for e in run("copy_bkgb_gbbk").trace]
    assert ours[:66] == theirs[:66]
    assert theirs[66][0] == 192 + 49
    assert ours[66][0] == 192 + 52
