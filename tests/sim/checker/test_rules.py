"""The table itself: its names exist, the page shows it, it stands alone; and each rule about state, broken by hand."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from wordline.errors import WordlineError
from wordline.machines import Machine, load_machine
from wordline.machines.gddr6_aim import Timing
from wordline.sim import checker
from wordline.sim.checker import INTERVALS, PROFILES, STATE_RULES, Burst, Checker, check, profile_constants
from wordline.sim.checker.commands import ALL_BANKS, COMMANDS, ONE_BANK
from wordline.sim.checker.rules import Interval, Scope, constants_of, cycles_of
from wordline.sim.timing import DRAM_COMMANDS

ROOT = Path(__file__).resolve().parents[3]
CHIP = load_machine("gddr6-aim-chip")
OURS, PUBLISHED = PROFILES


def test_the_checker_imports_the_machine_and_nothing_else() -> None:
    allowed = ("wordline.errors", "wordline.machines", "wordline.sim.checker")
    for path in Path(checker.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert [n for n in names if n.startswith("wordline") and not n.startswith(allowed)] == [], path


def test_the_commands_are_those_of_the_models() -> None:
    assert sorted(COMMANDS) == sorted(DRAM_COMMANDS)


@pytest.mark.parametrize("profile", PROFILES)
def test_rows_are_sound(profile: str) -> None:
    declared = {f"timing.{f.name}" for f in fields(Timing)}
    banked = {*ONE_BANK, *ALL_BANKS}
    for row in INTERVALS[profile]:
        assert {*row.earlier, *row.later} <= set(COMMANDS)
        assert row.scope is Scope.CHANNEL or {*row.earlier, *row.later} <= banked, row
        # Only what stands in the file: no sum that the schema derives.
        assert {p for p in constants_of(row.cycles) if p.startswith("timing.")} <= declared
    rows = [str(row) for row in INTERVALS[profile]]
    assert len(set(rows)) == len(rows)
    for path in profile_constants(profile):
        assert CHIP.field(path).source


def test_every_interval_of_the_machine_file_is_checked() -> None:
    used = profile_constants(OURS) | profile_constants(PUBLISHED)
    assert {f"timing.{f.name}" for f in fields(Timing)} <= used


def test_sums() -> None:
    assert cycles_of("nCL + nBL + nRTW + nWPRE - nCWL", CHIP) == 50
    assert cycles_of("nCLREG + nBL - nCWL", CHIP) == 0  # not negative
    assert cycles_of("aim_simulator.nRRDL + 1", CHIP) == 7
    assert constants_of("nCL + 2 - aim_simulator.nRRDL") == ["timing.nCL", "aim_simulator.nRRDL"]


def table_of(profile: str) -> list[str]:
    """The intervals of a profile as rows of the page, without those of both."""
    other = INTERVALS[PUBLISHED if profile == OURS else OURS]
    return [row_of(row) for row in INTERVALS[profile] if row not in other]


def row_of(row: Interval) -> str:
    every = {COMMANDS: "any", tuple(c for c in COMMANDS if c != "TMOD"): "any but TMOD"}
    every |= {tuple(c for c in COMMANDS if c != "MAC16"): "any but MAC16"}
    earlier, later = (every.get(names, ", ".join(names)) for names in (row.earlier, row.later))
    switch = "" if row.when is None else f"; only if `{row.when[0]}` is {str(row.when[1]).lower()}"
    return f"| {earlier} | {later} | {row.scope}{switch} | `{row.cycles}` |"


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "checker.md").read_text(encoding="utf-8").splitlines()
    shown = [line for line in page if line.startswith("|") and line.count("|") == 5]
    common = [row_of(row) for row in INTERVALS[OURS] if row in INTERVALS[PUBLISHED]]
    head = ["| earlier | later | where | cycles |", "|---|---|---|---|"]
    assert shown == [*head, *common, *head, *table_of(OURS), *head, *table_of(PUBLISHED)]
    for rules in STATE_RULES.values():
        for name, rule in rules.items():
            assert any(f"`{name}`" in line and rule.text in line for line in page), name


# --- rules about state, by hand


def commands(text: str, channel: int = 0) -> list[Burst]:
    """ "cycle COMMAND [bank] [row] [column=n]": a bank for commands that name one, a row for those that need one."""
    made = []
    for part in text.split(","):
        cycle, command, *numbers = part.split()
        column = -1
        if numbers and numbers[-1].startswith("column="):
            column = int(numbers.pop().removeprefix("column="))
        values = [int(number) for number in numbers]
        bank = values.pop(0) if command in ONE_BANK else -1
        made.append(Burst(int(cycle), 1, 0, channel, command, bank, values[0] if values else -1, column))
    return made


STRICT = {"refresh.pull_in": 0, "refresh.postpone": 0}
REPAIRED = {"aim_simulator.refresh": True}

BROKEN: list[tuple[str, str, dict[str, int | bool], str]] = [
    ("row-open", OURS, {}, "0 MAC16 3"),
    ("row-open", OURS, {}, "0 ACT 2 3, 60 MAC 2 4"),
    ("row-open", OURS, {}, "0 ACT 2 3, 60 MAC 1 3"),
    ("row-open", OURS, {}, "0 ACT16 3, 99 WRA16 3, 400 RD 5 3"),
    ("bank-closed", OURS, {}, "0 ACT 2 3, 100 ACT 2 3"),
    ("bank-closed", OURS, {}, "0 ACT 2 3, 100 ACT16 4"),
    ("bank-closed", OURS, {}, "0 ACT16 3, 100 ACT16 3"),
    ("bank-open", OURS, {}, "0 PRE 4"),
    ("bank-open", OURS, {}, "0 PREA"),
    ("bank-open", PUBLISHED, {}, "0 ACT 2 3, 100 PRE 3"),
    ("mode", OURS, {}, "0 WRGB"),
    ("mode", OURS, {}, "0 TMOD, 40 ACT16 0"),
    ("mode", PUBLISHED, {"rules.row_commands_in_register_mode": True}, "0 TMOD, 40 ACT16 0"),
    ("mode-switch", PUBLISHED, {}, "0 ACT16 0, 56 MAC16 0, 57 TMOD, 89 RDMAC16"),
    ("refresh-closed", OURS, {}, "0 ACT 2 3, 3400 REFab"),
    ("refresh-early", OURS, {}, "0 REFab, 300 REFab"),
    ("refresh-early", OURS, {"refresh.enabled": False}, "7000 REFab"),
    ("refresh-early", PUBLISHED, REPAIRED, "3331 REFab"),
    ("refresh-early", PUBLISHED, {}, "3332 REFab"),
    ("refresh-due", OURS, {}, "6666 ACT16 0"),
    ("refresh-due", OURS, STRICT, "3333 ACT16 0"),
    ("refresh-due", OURS, STRICT, "0 ACT 0 0, 3333 PRE 0"),
    ("refresh-due", PUBLISHED, REPAIRED, "3332 ACT16 0"),
    ("refresh-late", OURS, STRICT, "3334 REFab"),
    ("activation-window", OURS, {"rules.faw_enforced": True}, "0 ACT16 0, 60 PREA, 167 ACT16 1"),
    (
        "activation-window",
        OURS,
        {"rules.faw_enforced": True, "timing.nRRDS": 1},
        "0 ACT 0 0, 20 ACT 4 0, 21 ACT 8 0, 22 ACT 12 0, 41 ACT 1 0",
    ),
    ("address", OURS, {}, "0 ACT 16 0"),
    ("address", OURS, {}, "0 ACT 0 16384"),
    ("address", OURS, {}, "0 ACT 0 0, 60 RD 0 0 column=64"),
    ("address", OURS, {}, "0 TMOD, 40 WRGB column=64"),
    ("address", PUBLISHED, {}, "0 TMOD, 40 RDMAC16 column=32"),
    ("one-command-a-cycle", OURS, {}, "0 TMOD, 0 TMOD"),
]


@pytest.mark.parametrize(("rule", "profile", "settings", "text"), BROKEN, ids=[f"{b[0]}-{b[3]}" for b in BROKEN])
def test_a_rule_broken(rule: str, profile: str, settings: dict[str, int | bool], text: str) -> None:
    machine = load_machine("gddr6-aim-chip", settings)
    made = commands(text)
    assert check(machine, made[:-1], profile).ok
    report = check(machine, made, profile)
    assert rule in report.by_rule
    found = next(v for v in report.violations if v.rule == rule)
    assert (found.cycle, found.command, found.channel) == (made[-1].first, made[-1].command, 0)
    if rule in STATE_RULES[profile]:
        assert found.text == STATE_RULES[profile][rule].text


def test_every_state_rule_is_broken_by_hand() -> None:
    for profile in PROFILES:
        shared = set(STATE_RULES[OURS]) & set(STATE_RULES[PUBLISHED]) - {"mode", "refresh-early", "refresh-due"}
        broken = {rule for rule, p, _, _ in BROKEN if p == profile or rule in shared}
        assert set(STATE_RULES[profile]) <= broken


KEPT: list[tuple[str, dict[str, int | bool], str]] = [
    (OURS, {}, "0 ACT 2 3, 89 ACT16 3, 145 MAC16 3"),
    (OURS, {}, "0 REFab, 210 ACT16 0"),
    (OURS, STRICT, "0 ACT16 0, 3333 PREA, 3365 REFab, 3575 TMOD"),
    (OURS, {"rules.row_commands_in_register_mode": True}, "0 TMOD, 40 ACT16 0, 41 TMOD"),
    (OURS, {"rules.commands_during_refresh": True}, "0 REFab, 1 TMOD, 33 WRGB"),
    (OURS, {"rules.faw_enforced": True}, "0 ACT16 0, 60 PREA, 168 ACT16 1"),
    (PUBLISHED, REPAIRED, "3300 TMOD, 3332 TMOD, 3364 REFab, 3365 TMOD, 3397 WRGB"),
    (PUBLISHED, REPAIRED, "3300 ACT 0 0, 3336 RD 0 0, 3354 PREA, 3389 REFab"),
    (PUBLISHED, {}, "0 ACT16 536870912, 86 AF16 536870912, 87 AF16 536870912"),
]


@pytest.mark.parametrize(("profile", "settings", "text"), KEPT, ids=[k[2] for k in KEPT])
def test_a_rule_kept(profile: str, settings: dict[str, int | bool], text: str) -> None:
    report = check(load_machine("gddr6-aim-chip", settings), commands(text), profile)
    assert report.ok, report.violations


def test_an_interval_names_the_earlier_command() -> None:
    report = check(CHIP, commands("0 ACT 5 3, 40 RD 5 3, 41 ACT 9 3, 50 PRE 5"), name="mine")
    first, second = report.violations
    assert (report.name, report.commands, report.cycles, report.channels, report.count) == ("mine", 4, 51, (0,), 2)
    assert (first.rule, first.earlier, first.earlier_cycle, first.earlier_bank) == ("nRAS", "ACT", 0, 5)
    assert (first.required, first.actual, first.bank, first.cycle) == (54, 50, 5, 50)
    assert first.text == "ACT, ACT16 -> PRE, PREA (same bank): nRAS"
    assert (second.rule, second.required, second.actual) == ("nRTP", 12, 10)
    assert report.document()["violations"][0] == first.document()
    assert first.document()["earlier_cycle"] == 0


def test_bursts_are_checked_as_single_commands() -> None:
    pair = [Burst(0, 1, 0, 0, "ACT16", -1, 0), Burst(54, 5, 1, 0, "MAC16", -1, 0, 62)]
    singles = [pair[0], *(Burst(54 + i, 1, 0, 0, "MAC16", -1, 0, 62 + i) for i in range(5))]
    reports = [check(CHIP, given) for given in (pair, singles)]
    assert reports[0] == reports[1]
    assert reports[0].by_rule == {"nRCDRDMAC": 2, "nCCDS": 4, "nCCDL": 4, "address": 3}


def test_channels_and_schedules_stand_alone() -> None:
    checker = Checker(CHIP)
    checker.feed(commands("0 ACT 0 0") + commands("0 ACT 0 1", channel=1) + commands("60 MAC 0 0"))
    assert checker.finish().channels == (0, 1)
    checker.begin("next")
    checker.feed(commands("0 MAC 0 0"))
    assert checker.finish().by_rule == {"row-open": 1}


def test_a_report_keeps_the_first_violations() -> None:
    report = check(CHIP, [Burst(0, 50, 1, 0, "WRGB", -1, -1)], limit=3)
    assert (report.count, len(report.violations), sum(report.by_rule.values())) == (50, 3, 50)


@pytest.mark.parametrize(
    ("burst", "what"),
    [
        (Burst(0, 1, 0, 0, "NOP", -1, -1), "there is no command 'NOP'"),
        (Burst(0, 1, 0, 0, "RD", -1, 0), "RD without a bank"),
        (Burst(0, 1, 0, 0, "MAC16", 3, 0), "MAC16 of bank 3"),
        (Burst(0, 1, 0, 0, "ACT", 3, -1), "ACT without a row"),
        (Burst(0, 3, 0, 0, "TMOD", -1, -1), "a burst needs a channel"),
        (Burst(-1, 1, 0, 0, "TMOD", -1, -1), "cycle -1 of channel 0 comes after its cycle"),
    ],
)
def test_what_is_no_schedule(burst: Burst, what: str) -> None:
    with pytest.raises(WordlineError, match=what) as caught:
        check(CHIP, [burst])
    assert caught.value.code == "bad-schedule"


def test_errors() -> None:
    with pytest.raises(WordlineError, match="cycle 4 of channel 0 comes after its cycle 5"):
        check(CHIP, commands("5 TMOD, 4 TMOD"))
    with pytest.raises(WordlineError) as caught:
        Checker(CHIP, "mine")
    assert (caught.value.code, caught.value.remedy) == ("unknown-profile", "choose one of corrected, aim-simulator")


def test_a_machine_of_other_sizes() -> None:
    machine: Machine = load_machine("gddr6-aim-chip", {"organisation.bank_groups": 2, "timing.nRRDL": 40})
    assert check(machine, commands("0 ACT 0 0, 20 ACT 8 0")).ok
    assert check(machine, commands("0 ACT 0 0, 20 ACT 7 0")).by_rule == {"nRRDL": 1}
