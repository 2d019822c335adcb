"""The cycle suite: small cases against the committed baseline, and how changes are found, shown and accepted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import baseline
from benchmarks.suite import CARD, CASES, CHIP, Attention, Case, Decode, Gemv, key, machine_of, measure
from wordline.artifact import Artifact
from wordline.engine import Session, Want
from wordline.runtime import DeviceSpec, Residency, open_device

SMALL: tuple[Case, ...] = (
    Gemv(CHIP, 192, 576),
    Gemv(CHIP, 576, 1536),
    Gemv(CHIP, 49152, 576),
    Gemv(CARD, 4096, 4096),
    Attention(CHIP, "SmolLM2-135M", 128),
    Attention(CHIP, "SmolLM2-135M", 4096),
    Attention(CARD, "Llama-3-8B", 1024),
)


@pytest.mark.parametrize("case", SMALL, ids=key)
def test_cycles_are_those_of_the_baseline(case: Case) -> None:
    """A change that is meant is accepted with `make bench ARGS=--accept`."""
    assert measure(case).cycles == baseline.read()[key(case)]


def test_the_decode_step_takes_the_cycles_of_the_baseline() -> None:
    """One compiled step of SmolLM2 serves every context."""
    for context in (128, 8000):
        case = Decode(CHIP, "SmolLM2-135M", context)
        assert measure(case).cycles == baseline.read()[key(case)]


def test_the_baseline_names_every_case() -> None:
    assert list(baseline.read()) == [key(case) for case in CASES]
    assert len(set(map(key, CASES))) == len(CASES)


@pytest.mark.parametrize("case", SMALL[:1] + SMALL[4:5], ids=key)
def test_entries_account_for_their_time(case: Case) -> None:
    entry = measure(case)
    assert sum(entry.causes.values()) == pytest.approx(entry.cycles)
    assert entry.ns == entry.cycles * machine_of(case.machine).clock.tck_ns
    shares = [entry.percent(name) for name in entry.limits_ns]
    assert shares == sorted(shares)  # each limit includes the one before
    assert 0 < shares[-1] <= 100
    assert entry.percent("L3") is None or case.kind == "gemv"
    document = entry.document(machine_of(case.machine))
    assert json.loads(json.dumps(document)) == document


def test_changes_are_named() -> None:
    found = baseline.changes({"a": 100, "b": 5, "c": 7}, {"a": 110, "b": 5, "d": 9})
    assert [str(change) for change in found] == [
        "a: 100 -> 110 cycles (+10.00 %)",
        "d: new, 9 cycles",
        "c: gone, was 7 cycles",
    ]


def test_a_change_fails_until_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = Gemv(CHIP, 192, 576)
    cycles = measure(case).cycles
    monkeypatch.setattr(baseline, "BASELINE", tmp_path / "baseline.json")
    baseline.write({key(case): cycles - 1, "another": 3})
    only = ["--only", key(case)]

    assert command.main(only) == 1
    out = capsys.readouterr().out
    assert f"{key(case)}: {cycles - 1} -> {cycles} cycles" in out
    assert "make bench ARGS=--accept" in out

    assert command.main([*only, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["entries"][0]["baseline_cycles"] == cycles - 1
    assert document["changes"] == [{"name": key(case), "before": cycles - 1, "after": cycles}]

    assert command.main([*only, "--accept"]) == 0
    assert baseline.read() == {key(case): cycles, "another": 3}
    assert command.main(only) == 0
    assert "every case takes the cycles of the baseline" in capsys.readouterr().out


def test_an_unknown_case_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(["--only", "no such case"])
    assert caught.value.code == 2
    assert key(CASES[0]) in capsys.readouterr().err


def test_the_decode_step_is_what_a_session_takes(smollm2_artifact: Artifact) -> None:
    """The suite's model without weights, and the real one driven by the engine."""
    case = Decode(CHIP, "SmolLM2-135M", 1024)
    model = Residency(open_device(DeviceSpec("null", smollm2_artifact.machine))).acquire(smollm2_artifact)
    with Session(model) as session:
        session.skip_to(case.context - 1)
        assert session.step(0, Want.NEXT).cycles == measure(case).cycles
