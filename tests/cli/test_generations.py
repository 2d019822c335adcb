"""What a generation cannot do yet is an error with a code, in every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from wordline.cli import main
from wordline.machines import list_machines, load_machine

OTHERS = [name for name in list_machines() if not load_machine(name).has_native]


@pytest.mark.parametrize("machine", OTHERS)
@pytest.mark.parametrize(
    "command", ["energy", "timing trace.aim", "estimate SmolLM2-135M", "devices sim:{}", "devices null:{}"]
)
def test_commands_refuse_what_they_cannot_do_yet(
    machine: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.aim").write_text("AiM EOC\n")
    words = command.format(machine).split()
    options = [] if "{}" in command else ["--machine", machine]
    assert main([*words, *options]) == 2
    err = capsys.readouterr().err
    assert "error[unsupported-generation]: wordline cannot do this yet for a machine of generation hbm2-pim" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("machine", OTHERS)
def test_limits_and_devices_know_every_machine(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits", "--gemv", "4096x4096", "--machine", machine]) == 0
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    assert "4096x4096" in out
    assert f"sim:{machine}" in out
    assert "not yet: this driver lacks the generation" in out


@pytest.mark.parametrize("machine", OTHERS)
def test_the_reference_device_works_for_every_machine(machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", f"reference:{machine}?set=organisation.channels=2"]) == 0
    assert "DRAM: written and read back" in capsys.readouterr().out
