"""``wordline profile``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.artifacts import tiny_contents
from wordline.artifact import write_artifact
from wordline.cli import main

MODEL = ["profile", "SmolLM2-135M", "--layers", "1", "--context", "300"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_artifact(tmp_path / "tiny.wl", tiny_contents())


def test_an_artifact(capsys: pytest.CaptureFixture[str], tiny: Path) -> None:
    assert main(["profile", str(tiny), "--context", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    path = document["critical_path"]
    assert sum(part["cycles"] for part in path["parts"]) == document["cycles"] == path["cycles"] > 0
    first = path["parts"][0]
    assert first == {
        "begin": 0,
        "end": 36,
        "cycles": 36,
        "constraint": "timing.nRCDRD",
        "times": 1,
        "kind": "row_turn",
        "command": "RD",
        "where": "channels 0-1",
        "stream": 0,
        "instruction": 0,
        "operation": first["operation"],
    }
    assert path["parts"][-1]["constraint"] == "refresh_charge"
    assert path["constants"]["timing.nRCDRD"] == 1


def test_a_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    assert main([*MODEL, "--json", "--perfetto", str(file), "--channels", "1-1"]) == 0
    document = json.loads(capsys.readouterr().out)
    path = document["critical_path"]
    cycles = document["cycles"]
    assert sum(path["kinds"].values()) == cycles
    assert sum(row["cycles"] for row in path["constraints"]) == cycles
    assert sum(part["cycles"] for part in path["parts"]) == cycles
    assert sum(row["cycles"] for row in document["operations"]) == cycles
    for row in document["operations"]:
        assert sum(row["kinds"].values()) == row["cycles"]
    assert {"mac", "row_turn", "mode_switch", "refresh", "wait", "vector"} <= set(path["kinds"])
    assert any(row["operation"].startswith("linear") for row in document["operations"])
    waits = [part for part in path["parts"] if part["constraint"] == "signal"]
    assert {part["where"] for part in waits} > {"vector unit"}
    assert all(part["signal"] >= 0 for part in waits)
    written = json.loads(file.read_text())
    processes = {e["args"]["name"].split(" (")[0] for e in written["traceEvents"] if e["name"] == "process_name"}
    assert processes == {"critical path", "vector unit", "link", "channel 1"}
    assert written["otherData"]["cycles"] == cycles

    assert main(MODEL) == 0
    shown = capsys.readouterr().out
    assert f"{cycles:,} cycles" in shown
    for title in ("what was waited for", "by operation, layers together", "in order of time"):
        assert f"critical path: {title}" in shown
    assert "nRCDRDMAC" in shown


def test_the_time_is_that_of_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MODEL, "--json"]) == 0
    profiled = json.loads(capsys.readouterr().out)["cycles"]
    assert main(["estimate", *MODEL[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"][0]["cycles"] == profiled


def test_errors(capsys: pytest.CaptureFixture[str], tiny: Path, tmp_path: Path) -> None:
    assert main(["profile", str(tiny), "--context", "1000000", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["where"]) == ("bad-context", str(tiny))
    assert main(["profile", str(tiny), "--entry", "prefill"]) == 2
    assert "the artifact has no entry 'prefill'" in capsys.readouterr().err
    assert main(["profile", str(tiny), "--layers", "1"]) == 2
    assert "conflicting-options" in capsys.readouterr().err
    assert main(["profile", str(tiny), "--machine", "gddr6-aim-card"]) == 2
    assert "machine-mismatch" in capsys.readouterr().err
    assert main(["profile", str(tiny), "--perfetto", str(tmp_path)]) == 2
    assert "the output is a folder" in capsys.readouterr().err
    assert main(["profile", str(tiny), "--channels", "0,2"]) == 2
    assert "bad-channel" in capsys.readouterr().err
    for bad in ("x", "3-1", "1,", "-1"):
        with pytest.raises(SystemExit) as stopped:
            main(["profile", str(tiny), "--channels", bad])
        assert stopped.value.code == 2
