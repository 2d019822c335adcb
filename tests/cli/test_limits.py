"""``wordline limits``."""

from __future__ import annotations

import json

import pytest

from tests.support.reference import reference_rows
from wordline.cli import main


def run(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["limits", *options]) == 0
    return capsys.readouterr().out


def test_the_json_equals_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row for row in reference_rows("limits/gemv.csv") if row["channels"] == "2"]
    shapes = [option for row in rows for option in ("--gemv", f"{row['M']}x{row['K']}")]
    document = json.loads(run(capsys, *shapes, "--json"))
    assert document["channels"] == 2
    assert document["decode"] == []
    for row, entry in zip(rows, document["gemv"], strict=True):
        assert [f"{entry[f'L{level}_ns']:.1f}" for level in range(4)] == [row[f"L{level}_ns"] for level in range(4)]


def test_the_default_is_the_default_model(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys)
    assert "machine gddr6-aim-chip (" in shown
    assert "one decode step of SmolLM2-135M, batch 1" in shown
    assert "0.5065" in shown.split("one decode step")[1]
    # One stacked matrix per input, so that the sum over layers is the model.
    document = json.loads(run(capsys, "--json"))
    weights = [entry["m"] * entry["k"] for entry in document["gemv"]]
    assert 2 * (30 * sum(weights[:4]) + weights[4]) == document["decode"][0]["weight_bytes"]


def test_model_context_batch_and_channels(capsys: pytest.CaptureFixture[str]) -> None:
    row = next(
        row
        for row in reference_rows("limits/decode.csv")
        if [row[key] for key in ("model", "channels", "batch", "context")] == ["Llama-2-7B", "32", "1", "1024"]
    )
    options = (
        "--model",
        "Llama-2-7B",
        "--machine",
        "gddr6-aim-card",
        "--context",
        "1024",
        "--context",
        "4096",
        "--json",
    )
    one = json.loads(run(capsys, *options))["decode"]
    assert [step["context"] for step in one] == [1024, 4096]
    assert f"{one[0]['L2B_ns'] / 1e6:.4f}" == row["L2B_ms"]
    assert one[1]["fits"]
    many = json.loads(run(capsys, *options, "--batch", "16"))["decode"]
    assert many[1]["kv_bytes"] == 16 * one[1]["kv_bytes"]
    assert not many[1]["fits"]
    few = json.loads(run(capsys, *options, "--channels", "8"))["decode"]
    assert few[0]["L0_ns"] == pytest.approx(4 * one[0]["L0_ns"])


def test_set_makes_a_named_variant(capsys: pytest.CaptureFixture[str]) -> None:
    plain = json.loads(run(capsys, "--gemv", "64x64", "--json"))
    document = json.loads(run(capsys, "--gemv", "64x64", "--set", "timing.nRP=16", "--json"))
    assert document["machine"]["name"] == "gddr6-aim-chip+timing.nRP=16"
    assert document["machine"]["hash"] != plain["machine"]["hash"]
    assert document["gemv"][0]["L1_ns"] < plain["gemv"][0]["L1_ns"]


@pytest.mark.parametrize(
    ("options", "code", "part"),
    [
        (["--machine", "gddr6-chip"], "unknown-machine", "gddr6-aim-chip"),
        (["--set", "timing.nRQ=1"], "unknown-field", "timing.nRP"),
        (["--set", "timing.nRP"], "bad-setting", "PATH=VALUE"),
        (["--model", "Lama-2-7B"], "unknown-model-shape", "Llama-2-7B"),
        (["--set", "rules.row_buffers=2"], "limits-undefined", "rules.row_buffers=1"),
    ],
)
def test_errors(capsys: pytest.CaptureFixture[str], options: list[str], code: str, part: str) -> None:
    assert main(["limits", *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error[{code}]: ")
    assert part in error


@pytest.mark.parametrize("shape", ["4096", "0x4", "4x-1", "axb", "4x4x4", "4x"])
def test_a_bad_shape_is_wrong_use(capsys: pytest.CaptureFixture[str], shape: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["limits", "--gemv", shape])
    assert stopped.value.code == 2
    assert f"{shape!r} is not of the form MxK" in capsys.readouterr().err
