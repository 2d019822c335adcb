"""Schedules as text: written, read again, and refused with the line."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.support.schedules import OURS, PUBLISHED, corpus
from wordline.errors import WordlineError
from wordline.machines import load_machine
from wordline.sim.checker import Burst, Section, check, check_file, fold, read_schedule, write_schedule

CHIP = load_machine("gddr6-aim-chip")


def text_of(bursts: list[Burst], name: str = "mine", total: int | None = None) -> str:
    out = io.StringIO()
    write_schedule(out, name, bursts, total)
    return out.getvalue()


def test_the_form() -> None:
    bursts = [
        Burst(0, 1, 0, 1, "ACT16", -1, 7),
        Burst(56, 64, 2, 1, "MAC16", -1, 7, 0),
        Burst(3, 1, 0, 0, "ACT", 5, 2),
        Burst(60, 2, 4, 0, "RD", 5, 2),
    ]
    text = text_of(bursts, "two channels", 183)
    assert text == (
        "== two channels total=183\n0 1 ACT16 - 7 -\n3 0 ACT 5 2 -\n56..182/2 1 MAC16 - 7 0..63\n60..64/4 0 RD 5 2 -\n"
    )
    head, *read = read_schedule(text.splitlines(), CHIP)
    assert head == Section("two channels", 183)
    assert [b._replace(line=0) for b in read if isinstance(b, Burst)] == sorted(bursts)


@pytest.mark.parametrize("profile", [OURS, PUBLISHED])
def test_reading_what_was_written(profile: str) -> None:
    for schedule in corpus(profile)[::3]:
        entries = [(c.first, c.channel, c.command, c.bank, c.row, c.column) for c in schedule.commands]
        bursts = list(fold(entries))
        assert sum(b.length for b in bursts) == len(entries)
        _, *read = read_schedule(text_of(bursts).splitlines(), schedule.machine)
        again = [b._replace(line=0) for b in read if isinstance(b, Burst)]
        assert sorted(again) == sorted(b._replace(row=b.row if b.row >= 0 else -1) for b in bursts)
        assert check(schedule.machine, again, profile).commands == len(entries)


def test_folding() -> None:
    singles = [(cycle, 0, "WRGB", -1, -1, column) for cycle, column in [(0, 0), (2, 1), (4, 2), (8, 3), (10, 9)]]
    assert [b[:2] + b[7:8] for b in fold(singles)] == [(0, 3, 0), (8, 1, 3), (10, 1, 9)]
    mixed = [(0, 0, "TMOD", -1, -1), (0, 1, "TMOD", -1, -1), (40, 0, "TMOD", -1, -1), (50, 1, "ACT", 2, 3)]
    assert sorted(fold(mixed)) == [
        Burst(0, 1, 0, 1, "TMOD", -1, -1),
        Burst(0, 2, 40, 0, "TMOD", -1, -1),
        Burst(50, 1, 0, 1, "ACT", 2, 3),
    ]


def test_the_form_of_the_public_simulator() -> None:
    lines = ["# comment", "", "== a.trace total=9", "  0 ACT 1 2 3 7 0"]
    lines += ["  66..70 step 2 RDCP x3 1 2 3 7 col 0..2", "  80 TMOD 1 -1 -1 0 0"]
    head, *bursts = read_schedule(lines, CHIP)
    assert head == Section("a.trace", 9)
    assert bursts == [
        Burst(0, 1, 0, 1, "ACT", 11, 7, -1, 4),
        Burst(66, 3, 2, 1, "RDCP", 11, 7, -1, 5),
        Burst(80, 1, 0, 1, "TMOD", -1, 0, -1, 6),
    ]


def test_files_of_several_schedules(tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    path.write_text(
        "0 0 WRGB - - 0\n== good\n0 0 TMOD - - -\n32 0 WRGB - - 0 # a comment\n== empty\n== bad\n1 1 PREA - - -\n"
    )
    reports = check_file(path, CHIP, OURS)
    assert [r.name for r in reports] == [str(path), "good", "empty", "bad"]
    assert [dict(r.by_rule) for r in reports] == [{"mode": 1}, {}, {}, {"bank-open": 1}]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("0 0 ACT16 -", "4 fields"),
        ("x 0 ACT16 - 0 -", "'x' is no cycle"),
        ("0x 0 TMOD - - -", "'0x' is no cycle"),
        ("0..5/2 0 MAC16 - 0 -", "'0..5/2' is no range with a step that divides it"),
        ("0..5 0 MAC16 - 0 -", "'0..5' is no cycle"),
        ("0 0 MAC16 - q -", "'q' is no number"),
        ("0 0 NOP - - -", "there is no command 'NOP'"),
        ("0 0 RD - 3 -", "RD without a bank"),
        ("0 0 ACT 3 - -", "ACT without a row"),
        ("0 TMOD 0 -1 -1 x 0", "a field is no number"),
        ("0..4 step 2 RDCP x9 0 0 0 0 col 0..8", "9 commands 2 cycles apart end at 16, not 4"),
        ("==", "a head without a name"),
    ],
)
def test_malformed_lines(line: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(f"# first\n{line}\n")
    with pytest.raises(WordlineError) as caught:
        check_file(path, CHIP, OURS)
    error = caught.value
    assert (error.code, error.what, error.where) == ("bad-schedule", what, f"{path}:2")
    assert error.remedy is not None
    assert error.remedy.startswith("expected ")


def test_what_is_out_of_order_or_no_text(tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("== a\n5 0 TMOD - - -\n4 0 TMOD - - -\n")
    with pytest.raises(WordlineError, match="cycle 4 of channel 0 comes after its cycle 5") as caught:
        check_file(path, CHIP, OURS)
    assert caught.value.where == f"{path}:3"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WordlineError, match="this is no text"):
        check_file(path, CHIP, OURS)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (f"{'9' * 5000} 0 ACT16 - 7 -", "is no cycle"),
        ("0 \u00b2 ACT16 - 7 -", "6 fields"),
        ("0 0 ACT --3 7 -", "'--3' is no number"),
        ("0 0 RD 0 7 -\u00b2", "'-\u00b2' is no number"),
    ],
)
def test_what_only_looks_like_a_number(line: str, problem: str) -> None:
    with pytest.raises(WordlineError) as caught:
        list(read_schedule([line], load_machine("gddr6-aim-card")))
    assert caught.value.code == "bad-schedule"
    assert problem in caught.value.what
    assert caught.value.where == "schedule:1"
