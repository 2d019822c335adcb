"""A wrong schedule, or a wrong constant, is noticed: commands moved, dropped and swapped, every constant changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.support.schedules import OURS, PUBLISHED, Schedule, busy, corpus, scenarios
from wordline.machines import Machine, load_machine
from wordline.sim.checker import INTERVALS, STATE_RULES, Burst, check, profile_constants
from wordline.sim.checker.rules import constants_of

PROFILES = (OURS, PUBLISHED)

#: Programs by hand in which something else than the rules decides when a command issues: slots of loops, waits, REF.
NOT_ONLY_RULES = {
    "refresh, strict",
    "refresh, postponed once",
    "refresh in register mode",
    "refresh hidden under a wait",
    "refresh by the program",
    "refresh late, by the program",
}


def by_hand() -> list[Schedule]:
    return [schedule for schedule in scenarios() if schedule.name not in NOT_ONLY_RULES]


def sampled(commands: Sequence[Burst]) -> Iterator[int]:
    """Positions: of a run of equal commands the first two and the last two only."""
    for i in range(len(commands)):
        around = commands[max(0, i - 2) : i + 3]
        if len(around) < 5 or len({c.command for c in around}) > 1:
            yield i


def moved(commands: Sequence[Burst], i: int, by: int) -> list[Burst]:
    return [c._replace(first=c.first + by) if j == i else c for j, c in enumerate(commands)]


def due_cycles(schedule: Schedule) -> set[int]:
    """Cycles in which a refresh becomes due."""
    t, ours = schedule.machine.timing, schedule.profile == OURS
    first = schedule.machine.refresh.postpone + 1 if ours else 1
    return {k * t.nREFI - (not ours) for k in range(first, 200)}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_command_one_cycle_earlier(profile: str) -> None:
    """Every command of these waits for a rule, but for the first one and those that wait for a refresh to be due."""
    tried = 0
    for schedule in (*(by_hand() if profile == OURS else ()), *busy(profile)):
        commands = [c for c in schedule.commands if c.channel == 0]
        due = due_cycles(schedule)
        for i in sampled(commands):
            if commands[i].first in due and commands[i].command in {"TMOD", "PREA", "REFab"}:
                continue
            if i == 0:
                assert commands[0].first <= 1
                continue
            if profile == PUBLISHED and commands[i].command == "TMOD" and commands[i + 1].command in {"ACT", "PRE"}:
                continue  # which may be another's than what TMOD was for
            tried += 1
            assert not schedule.check(moved(commands, i, -1)).ok, f"{schedule.name}: {commands[i]}"
    assert tried > 400


def test_a_refresh_one_cycle_later() -> None:
    """TMOD, PREA and REFab of a refresh that is due issue as early as they can."""
    tried = 0
    for schedule in corpus(OURS):
        first = min(due_cycles(schedule))
        for i, command in enumerate(schedule.commands):
            if command.command == "REFab" and command.first >= first:
                tried += 1
                report = schedule.check(moved(schedule.commands[: i + 1], i, 1))
                assert set(report.by_rule) == {"refresh-late"}, schedule.name
    assert tried > 15


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("kind", ["ACT", "ACT16", "PRE", "PREA", "TMOD", "REFab"])
def test_a_command_dropped(kind: str, profile: str) -> None:
    tried = 0
    for schedule in corpus(profile):
        for channel in {c.channel for c in schedule.commands}:
            commands = [c for c in schedule.commands if c.channel == channel]
            for i, command in enumerate(commands):
                if command.command == kind and missed(schedule, commands, i):
                    tried += 1
                    report = schedule.check([*commands[:i], *commands[i + 1 :]])
                    assert not report.ok, f"{schedule.name}: {command}"
    assert tried > 9


def missed(schedule: Schedule, commands: Sequence[Burst], i: int) -> bool:
    """Whether anything that follows needs command i."""
    dropped, later = commands[i], commands[i + 1 :]
    if dropped.command == "REFab":  # until the next one is overdue too, it is only charged
        due = sorted(due_cycles(schedule))[sum(c.command == "REFab" for c in commands[:i])]
        refreshing = set() if schedule.profile == OURS else {"TMOD", "PREA", "REFab", "ACT", "PRE", "RD", "WR"}
        return any(c.first >= due and c.command not in refreshing for c in later)
    if dropped.command == "TMOD":
        free = schedule.profile == OURS and schedule.machine.rules.row_commands_in_register_mode
        return any(c.command not in {"ACT", "ACT16", "PRE", "PREA", "REFab"} or not free for c in later)
    every_bank = {"PREA", "ACT16", "MAC16", "AF16", "EWMUL16", "WRA16", "REFab"}
    touching = (c for c in later if dropped.bank in {c.bank, -1} or c.command in every_bank)
    following = next((c for c in touching if c.command not in {"WRGB", "WRMAC16", "RDMAC16", "RDAF16", "TMOD"}), None)
    if following is None:
        return False
    if dropped.command == "PRE":  # all banks are closed once more
        return following.command != "PREA"
    if dropped.command == "ACT":  # all banks are opened, or closed
        return following.command not in {"PREA", "ACT16"}
    return True


@pytest.mark.parametrize("profile", PROFILES)
def test_two_commands_swapped(profile: str) -> None:
    """Neighbours in time, one of them for all banks or the mode. (Accesses of two banks, say, may come either way.)"""
    tried = 0
    for schedule in corpus(profile):
        for channel in {c.channel for c in schedule.commands}:
            commands = [c for c in schedule.commands if c.channel == channel]
            for i, (a, b) in enumerate(pairwise(commands)):
                kinds = {a.command, b.command}
                if len(kinds) == 1 or not kinds & {"ACT16", "PREA", "TMOD", "REFab"} or allowed_in_turn(schedule, a, b):
                    continue
                tried += 1
                swapped = [b._replace(first=a.first), a._replace(first=b.first)]
                report = schedule.check([*commands[:i], *swapped, *commands[i + 2 :]])
                assert not report.ok, f"{schedule.name}: {a}, {b}"
    assert tried > 200


def allowed_in_turn(schedule: Schedule, a: Burst, b: Burst) -> bool:
    """Row commands beside register commands where the mode does not matter, and ACT16 of a row that a bank has open."""
    free = schedule.profile == OURS and schedule.machine.rules.row_commands_in_register_mode
    rows, registers = {"ACT16", "PREA", "REFab"}, {"WRGB", "WRMAC16", "RDMAC16", "RDAF16", "TMOD"}
    beside = {a.command, b.command} & rows and {a.command, b.command} & registers
    return bool(free and beside) or (b.command == "ACT16" and a.bank >= 0 and a.row == b.row)


# --- constants

#: Permissions: a schedule cannot have too much of them, so they are lowered.
LOWERED = {
    "refresh.pull_in": 1,
    "refresh.postpone": 1,
    "organisation.channels": 1,
    "organisation.banks": 4,
    "organisation.rows": 1,
    "organisation.columns": 1,
    "buffer.columns": 1,
    "bank_unit.accumulators": 1,
}


def changed(machine: Machine, path: str) -> Machine | None:
    """The machine with a constant one higher (or lower, or a switch flipped); None where there is no lower one."""
    value = machine.field(path).value
    if isinstance(value, bool):
        return load_machine(machine.name, {path: not value})
    assert isinstance(value, int)
    new = value - LOWERED.get(path, -1)
    return (
        load_machine(machine.name, {path: new}) if new >= (path in LOWERED and not path.startswith("refresh")) else None
    )


def rules_with(path: str, profile: str) -> set[str]:
    rules = {row.name for row in INTERVALS[profile] if path in constants_of(row.cycles) or (row.when or "?")[0] == path}
    return rules | {name for name, rule in STATE_RULES[profile].items() if path in rule.constants}


@pytest.mark.parametrize(
    ("profile", "path"), [(profile, path) for profile in PROFILES for path in sorted(profile_constants(profile))]
)
def test_every_constant(profile: str, path: str) -> None:
    """Changed, it makes a schedule fail that was made with the right one, and a rule that uses it says so."""
    for schedule in corpus(profile):
        other = changed(schedule.machine, path)
        if other is not None and set(schedule.check(machine=other).by_rule) & rules_with(path, profile):
            return
    pytest.fail(f"no schedule notices {path}")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_row_of_the_table_binds(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cycle more, and some schedule fails."""
    table = INTERVALS[profile]
    idle = set()
    for i, row in enumerate(table):
        longer = replace(row, cycles=f"{row.cycles} + 1")
        monkeypatch.setitem(INTERVALS, profile, (*table[:i], longer, *table[i + 1 :]))  # type: ignore[arg-type]
        if all(check(s.machine, s.commands, profile).ok for s in corpus(profile)):
            idle.add(str(row))
    assert idle == set()
