"""``wordline timing``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.micro_traces import FOLDER
from wordline.cli import main

TRACE = FOLDER / "micro_traces" / "micro_wr_bias_mac_rd_mac.trace"


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timing", str(TRACE), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["machine"]["name"] == "gddr6-aim-card"
    assert (document["profile"], document["trace"]) == ("aim-simulator", str(TRACE))
    assert (document["cycles"], document["ns"], document["instructions"]) == (286, 143.0, 4)
    assert document["channels"] == [31]
    assert document["commands"] == {"ACT16": 1, "TMOD": 3, "MAC16": 64, "WRMAC16": 1, "RDMAC16": 1}
    energy = document["energy"]
    assert set(energy["kinds_j"]) == {*document["commands"], "standby, rows open", "standby, rows closed", "static"}
    assert energy["joules"] == pytest.approx(sum(energy["kinds_j"].values()))
    # the row is open for 221 of 286 cycles on one channel of 32
    assert energy["kinds_j"]["standby, rows open"] == pytest.approx(221 * 0.5 * 263.75e-12)
    assert energy["kinds_j"]["standby, rows closed"] == pytest.approx((32 * 286 - 221) * 0.5 * 183.15e-12)


def test_text_and_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["timing", str(TRACE), "--profile", "corrected", "--set", "refresh.enabled=false"]) == 0
    shown = capsys.readouterr().out
    # Read out in cycle 281 as there; the total counts until the data are in scratch.
    assert "293 cycles, 146.5 ns of device time" in shown
    assert "profile corrected of machine gddr6-aim-card+refresh.enabled=false" in shown
    assert "4 instructions for 1 channels (2 groups of alike ones)" in shown
    assert "MAC16" in shown
    assert "standby, rows open" in shown


def test_explain(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    assert main(["timing", str(TRACE), "--explain", "--json", "--perfetto", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    path = document["critical_path"]
    assert document["cycles"] == path["cycles"] == sum(part["cycles"] for part in path["parts"]) == 286
    assert path["parts"][0] == {
        "begin": 0,
        "end": 32,
        "cycles": 32,
        "constraint": "timing.nMODCH",
        "times": 1,
        "kind": "mode_switch",
        "command": "WRMAC16",
        "where": "channel 31",
        "line": 1,
    }
    assert path["kinds"]["mac"] == 126
    assert path["constraints"][0] == {
        "constraint": "timing.nCCDS",
        "command": "MAC16",
        "kind": "mac",
        "cycles": 126,
        "times": 63,
        "terms": {"timing.nCCDS": 1},
    }
    assert path["constants"] == {
        "timing.nBL": 1,
        "timing.nCLREG": 1,
        "timing.nRCDRDMAC": 1,
        "timing.nCCDS": 64,
        "timing.nMODCH": 3,
    }
    assert json.loads(file.read_text())["otherData"]["cycles"] == 286
    for profile in ("aim-simulator", "corrected"):
        assert main(["timing", str(TRACE), "--explain", "--profile", profile]) == 0
        shown = capsys.readouterr().out
        assert "critical path: what was waited for" in shown
        assert "2: AiM MAC_ABK 64 0x1 0" in shown
    assert main(["timing", str(TRACE), "--json"]) == 0
    assert "critical_path" not in json.loads(capsys.readouterr().out)
    assert main(["timing", str(TRACE), "--perfetto", str(tmp_path)]) == 2
    assert "the output is a folder" in capsys.readouterr().err


def test_a_switch(capsys: pytest.CaptureFixture[str]) -> None:
    trace = FOLDER / "micro_traces" / "micro_wr_sbk_1.trace"
    cycles = []
    for overtaking in ("true", "false"):
        assert main(["timing", str(trace), "--set", f"aim_simulator.overtaking={overtaking}", "--json"]) == 0
        cycles.append(json.loads(capsys.readouterr().out)["cycles"])
    assert cycles == [3, 38]  # a lone write is never executed there; without that defect EOC waits for its end


def test_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.trace"
    bad.write_text("AiM MAC_ABK 64 0x1\nAiM EOC\n")
    assert main(["timing", str(bad), "--json"]) == 2
    streams = capsys.readouterr()
    assert json.loads(streams.out)["error"] == {
        "code": "bad-trace",
        "what": "MAC_ABK lacks its field row",
        "where": f"{bad}:1",
        "remedy": "expected 'AiM MAC_ABK opsize channel_mask row'",
    }
    assert streams.err.startswith("error[bad-trace]: MAC_ABK lacks its field row\n")
    assert main(["timing", str(tmp_path / "none.trace")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["timing", str(tmp_path)]) == 2
