"""``wordline check``, and the schedules that ``wordline timing`` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.artifacts import tiny_contents
from tests.support.micro_traces import FOLDER
from wordline.artifact import write_artifact
from wordline.cli import main

TRACE = FOLDER / "micro_traces" / "micro_wr_bias_mac_rd_mac.trace"
COPIES = FOLDER / "micro_traces" / "micro_copy_bkgb_gbbk.trace"


@pytest.fixture
def schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The schedule of TRACE, by our rules."""
    path = tmp_path / "mine.txt"
    assert main(["timing", str(TRACE), "--profile", "corrected", "--schedule", str(path)]) == 0
    capsys.readouterr()
    return path


def test_the_schedule_of_a_trace(schedule: Path) -> None:
    assert schedule.read_text().splitlines() == [
        "== micro_wr_bias_mac_rd_mac.trace total=311",
        "0 0 TMOD - - -",
        "32 0 WRMAC16 - - -",
        "33 0 TMOD - - -",
        "65 0 ACT16 - 0 -",
        "121..247/2 0 MAC16 - 0 -",
        "249 0 TMOD - - -",
        "281 0 RDMAC16 - - -",
    ]


def test_a_schedule(schedule: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(schedule)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("rules of profile corrected on machine gddr6-aim-card (")
    assert "micro_wr_bias_mac_rd_mac.trace: 70 commands, 1 channel, 282 cycles: no violation\n" in shown


def test_violations(schedule: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--machine", "gddr6-aim-chip", "--set", "timing.nMAC2TMOD=3"]
    assert main(["check", str(schedule), *options]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].endswith("70 commands, 1 channel, 282 cycles: 1 violation")
    assert shown[2].split() == ["rule", "command", "cycle", "channel", "earlier", "required", "actual"]
    assert shown[3].split() == ["nMAC2TMOD", "TMOD", "249", "0", "MAC16", "@247", "3", "2"]
    assert shown[4] == "  nMAC2TMOD: MAC16 -> TMOD (channel): nMAC2TMOD"
    assert main(["check", str(schedule), *options, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["count"], document["commands"]) == ("schedule", 1, 70)
    assert document["machine"]["name"] == "gddr6-aim-chip+timing.nMAC2TMOD=3"
    (found,) = document["schedules"][0]["violations"]
    assert (found["rule"], found["cycle"], found["required"], found["actual"]) == ("nMAC2TMOD", 249, 3, 2)


def test_only_the_first_violations_are_listed(schedule: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", "timing.nCCDS=3", "--set", "timing.nRP=33", "--limit", "2"]
    assert main(["check", str(schedule), *options]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown[3:5]] == ["nCCDS", "nCCDS"]
    assert shown[-1] == "61 more are not listed; --limit N lists more"


def test_the_schedules_of_the_public_simulator(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(FOLDER / "command_schedules.txt")
    assert main(["check", path, "--profile", "aim-simulator"]) == 0
    assert "47 schedules, 10,432 commands: no violation" in capsys.readouterr().out
    assert main(["check", path]) == 1
    shown = capsys.readouterr().out
    assert "45 schedules, 2,301 commands: no violation" in shown
    assert "micro_copy_bkgb_gbbk.trace: 130 commands, 1 channel, 368 cycles: 2 violations" in shown
    assert "refresh-due: from the cycle in which the debt exceeds" in shown


@pytest.mark.parametrize("profile", ["corrected", "aim-simulator"])
def test_a_trace(profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "copies.txt"
    assert main(["check", str(COPIES), "--profile", profile, "--schedule", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["profile"], document["commands"]) == ("trace", profile, 130)
    # What it lets pass is found by our rules.
    assert main(["check", str(path), "--json"]) == (profile == "aim-simulator")


def test_an_artifact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = str(write_tiny(tmp_path))
    schedule = tmp_path / "tiny.txt"
    assert main(["check", artifact, "--args", "position=3", "--schedule", str(schedule)]) == 0
    shown = capsys.readouterr().out
    assert "tiny, entry decode: token=0, position=3, flags=1: 6 commands, 2 channels, 39 cycles: no violation" in shown
    assert schedule.read_text().splitlines()[1:3] == ["0 0 ACT 0 0 -", "0 1 ACT 0 0 -"]
    # Its own machine made it; another one's rules may be asked.
    assert main(["check", artifact, "--set", "timing.nRCDRD=40", "--json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)["schedules"]
    assert report["by_rule"] == {"nRCDRD": 4}


def write_tiny(folder: Path) -> Path:
    path = folder / "tiny.wl"
    write_artifact(path, tiny_contents())
    return path


def test_errors(schedule: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_text("== mine\n5 0 TMOD - - -\n7 0 WRGB - -\n")
    assert main(["check", str(bad), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["what"], error["where"]) == ("bad-schedule", "5 fields", f"{bad}:3")
    assert error["remedy"].startswith("expected cycle[..last/step] channel COMMAND bank row column")
    assert main(["check", str(schedule), "--schedule", str(bad)]) == 2
    assert "is a schedule itself" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "none")]) == 2
    assert "none" in capsys.readouterr().err
    assert main(["check", str(tmp_path)]) == 2
