"""Schedules as text: one burst a line (docs/checker.md). Command traces of the public simulator are read too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.sim.checker.check import LIMIT, Checker
from wordline.sim.checker.commands import COMMANDS, NAME_A_ROW, ONE_BANK, Burst
from wordline.sim.checker.violation import Report

FORM = "cycle[..last/step] channel COMMAND bank row column, '-' for what a command does not have"
PUBLISHED_FORM = "cycle COMMAND channel bankgroup bank row column"

# ASCII digits, few enough that Python converts them and that cycles stay below 2^63.
_DIGITS = "[0-9]{1,15}"
_NUMBER = re.compile(f"-?{_DIGITS}")
_SECTION = re.compile(rf"==\s+(.*?)(?:\s+total=(-?{_DIGITS}))?\s*$")
_CYCLES = re.compile(rf"({_DIGITS})(?:\.\.({_DIGITS})/({_DIGITS}))?$")
_PUBLISHED_RUN = re.compile(
    rf"({_DIGITS})\.\.({_DIGITS}) step ({_DIGITS}) (\w+) x({_DIGITS}) (.*?) col ({_DIGITS})\.\.({_DIGITS})$"
)


@dataclass(frozen=True)
class Section:
    """The head of a schedule: ``== NAME total=CYCLES``."""

    name: str
    total: int | None


def fold(entries: Iterable[tuple[int | str, ...]]) -> Iterator[Burst]:
    """Commands as bursts: what a channel repeats at one pitch, columns counting up, is one.

    Args:
        entries: (cycle, channel, command, bank, row) or with a column behind, each channel's in order.
    """
    open_bursts: dict[int, Burst] = {}
    for entry in entries:
        cycle, channel, command, bank, row = entry[:5]
        column = entry[5] if len(entry) > 5 else -1
        new = Burst(cycle, 1, 0, channel, command, bank, row, column)  # type: ignore[arg-type]
        current = open_bursts.get(new.channel)
        if current is not None:
            joined = _joined(current, new)
            if joined is not None:
                open_bursts[new.channel] = joined
                continue
            yield current
        open_bursts[new.channel] = new
    yield from open_bursts.values()


def _joined(burst: Burst, new: Burst) -> Burst | None:
    if burst[4:7] != new[4:7]:
        return None
    step = new.first - burst.last
    column = burst.column + burst.length if burst.column >= 0 else -1
    if new.column != column or step < 1 or (burst.length > 1 and step != burst.step):
        return None
    return burst._replace(length=burst.length + 1, step=step)


def write_schedule(out: IO[str], name: str, bursts: Iterable[Burst], total: int | None = None) -> None:
    """Write one schedule, in order of cycle, then channel."""
    out.write(f"== {' '.join(name.split())}" + ("" if total is None else f" total={total}") + "\n")
    for burst in sorted(bursts, key=lambda b: (b.first, b.channel)):
        cycles, column = str(burst.first), _number(burst.column)
        if burst.length > 1:
            cycles += f"..{burst.last}/{burst.step}"
            column += f"..{burst.column + burst.length - 1}" if burst.column >= 0 else ""
        place = f"{_number(burst.bank)} {_number(burst.row)} {column}"
        out.write(f"{cycles} {burst.channel} {burst.command} {place}\n")


def _number(value: int) -> str:
    return "-" if value < 0 else str(value)


def read_schedule(lines: Iterable[str], machine: Machine, name: str = "schedule") -> Iterator[Section | Burst]:
    """Heads and bursts of a file, in its order. Blank lines and what follows a "#" are left out.

    Raises:
        WordlineError: "bad-schedule" with the line and what was expected.
    """
    organisation = machine.organisation
    per_group = max(1, organisation.banks // organisation.bank_groups)
    for number, text in enumerate(lines, 1):
        line = text.partition("#")[0].strip()
        if not line:
            continue
        if line.startswith("=="):
            head = _SECTION.match(line)
            if head is None or not head[1]:
                raise _bad(name, number, "a head without a name", "== NAME, or == NAME total=CYCLES")
            yield Section(head[1], None if head[2] is None else int(head[2]))
            continue
        fields = line.split()
        if len(fields) > 1 and re.fullmatch(_DIGITS, fields[1]):
            yield _burst(fields, name, number)
        elif run := _PUBLISHED_RUN.match(" ".join(fields)):
            first, last, step, command, count, place, start, _ = run.groups()
            burst = _published([first, command, *place.split(), start], per_group, name, number)
            burst = burst._replace(length=int(count), step=int(step), column=-1)
            if burst.last != int(last):
                raise _bad(name, number, f"{count} commands {step} cycles apart end at {burst.last}, not {last}", FORM)
            yield burst
        else:
            yield _published(fields, per_group, name, number)


def _burst(fields: list[str], name: str, number: int) -> Burst:
    if len(fields) != 6:
        raise _bad(name, number, f"{len(fields)} fields", FORM)
    cycles = _CYCLES.match(fields[0])
    if cycles is None:
        raise _bad(name, number, f"{fields[0]!r} is no cycle", FORM)
    first, last, step = (int(value) if value else 0 for value in cycles.groups())
    count = 1
    if cycles[2]:
        if step < 1 or last <= first or (last - first) % step:
            raise _bad(name, number, f"{fields[0]!r} is no range with a step that divides it", FORM)
        count = (last - first) // step + 1
    values = []
    for field in (fields[3], fields[4], fields[5].partition("..")[0]):
        if field != "-" and not _NUMBER.fullmatch(field):
            raise _bad(name, number, f"{field!r} is no number", FORM)
        values.append(-1 if field == "-" else int(field))
    bank, row, column = values
    return _named(Burst(first, count, step, int(fields[1]), fields[2], bank, row, column, number), name)


def _published(fields: list[str], per_group: int, name: str, number: int) -> Burst:
    if len(fields) != 7:
        raise _bad(name, number, f"{len(fields)} fields", f"{FORM}; or {PUBLISHED_FORM}")
    try:
        cycle, channel, group, bank, row = (int(fields[i]) for i in (0, 2, 3, 4, 5))
    except ValueError:
        raise _bad(name, number, "a field is no number", PUBLISHED_FORM) from None
    bank = group * per_group + bank if group >= 0 else -1
    return _named(Burst(cycle, 1, 0, channel, fields[1], bank, row, -1, number), name)


def _named(burst: Burst, name: str) -> Burst:
    if burst.command not in COMMANDS:
        raise _bad(name, burst.line, f"there is no command {burst.command!r}", f"one of {', '.join(COMMANDS)}")
    if burst.command in ONE_BANK and burst.bank < 0:
        raise _bad(name, burst.line, f"{burst.command} without a bank", FORM)
    if burst.command in NAME_A_ROW and burst.row < 0:
        raise _bad(name, burst.line, f"{burst.command} without a row", FORM)
    return burst if burst.command in ONE_BANK else burst._replace(bank=-1)


def _bad(name: str, line: int, problem: str, expected: str) -> WordlineError:
    return WordlineError("bad-schedule", problem, where=f"{name}:{line}", remedy=f"expected {expected}")


def check_schedule(lines: Iterable[str], checker: Checker, name: str = "schedule") -> list[Report]:
    """Check every schedule of a file; one without a head is a schedule too.

    Raises:
        WordlineError: "bad-schedule".
    """
    reports: list[Report] = []
    begun = False
    checker.begin(name)
    for item in read_schedule(lines, checker.machine, name):
        if isinstance(item, Section):
            if begun:
                reports.append(checker.finish())
            checker.begin(item.name, name)
        else:
            checker.feed((item,))
        begun = True
    reports.append(checker.finish())
    return reports


def check_file(path: Path, machine: Machine, profile: str, *, limit: int = LIMIT) -> list[Report]:
    """Check a file of schedules. Raises ``OSError`` besides, and "bad-schedule" for what is no text."""
    with path.open(encoding="utf-8") as file:
        try:
            return check_schedule(file, Checker(machine, profile, limit=limit), str(path))
        except UnicodeDecodeError:
            raise WordlineError("bad-schedule", "this is no text", where=str(path), remedy=f"expected {FORM}") from None
