"""``wordline energy``: the constants of a machine."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from wordline.cli import main
from wordline.machines import load_machine
from wordline.machines.schema import CONFIDENCE, Energy
from wordline.sim.timing import DRAM_COMMANDS


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["energy", "--machine", "gddr6-aim-card", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    machine = load_machine("gddr6-aim-card")
    assert document["machine"] == {"name": machine.name, "hash": machine.hash}
    assert list(document["constants"]) == [entry.name for entry in fields(Energy)]
    for name, constant in document["constants"].items():
        assert constant["value"] == getattr(machine.energy, name)
        assert constant["confidence"] in CONFIDENCE
        assert all(constant[key] for key in ("unit", "source", "charged_for"))
    assert document["constants"]["io_bit"]["charged_for"] == (
        "RD, WR, WRGB, WRA16 x column bits; WRMAC16, RDMAC16, RDAF16 x register bits"
    )
    assert list(document["command_pj"]) == list(DRAM_COMMANDS)
    assert document["command_pj"]["ACT16"]["banks"] == pytest.approx(16 * 2950.35)
    assert document["not_accounted"][0].startswith("energy.refresh_rows: no public figure: not accounted")


def test_text_and_a_changed_constant(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["energy", "--set", "energy.io_bit=2", "--set", "energy.refresh_rows=1"]) == 0
    shown = capsys.readouterr().out
    line = next(line for line in shown.splitlines() if line.startswith("io_bit"))
    assert line.split()[1:6] == ["2", "pJ", "per", "bit", "override"]
    assert "override (was 5.5: CENT artifact 8c79786" in shown
    assert next(line for line in shown.splitlines() if line.startswith("WRGB")).split() == [
        "WRGB", "0.2", "512.0", "162.2", "674.4"
    ]  # fmt: skip
    assert "energy.refresh_rows" not in shown.split("not accounted:")[1]
    assert "the host and its end of the link" in shown
