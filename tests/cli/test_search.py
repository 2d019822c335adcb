"""``--search`` of compile, estimate, explain and generate: what it prints, writes and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.models import SHAPE, write_config
from wordline.artifact import open_artifact
from wordline.cli import main
from wordline.cli.cache import cache_key
from wordline.machines import load_machine

Capture = pytest.CaptureFixture[str]
FEW = ("--set", "bank_unit.accumulators=3")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("WORDLINE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "tiny"
    folder.mkdir()
    fields = {**SHAPE, "hidden_size": 576, "intermediate_size": 1536, "tie_word_embeddings": False}
    return str(write_config(folder / "config.json", model_type="llama", **fields))


def test_compile_searches_and_the_artifact_says_what_was_found(model: str, tmp_path: Path, capsys: Capture) -> None:
    plain, none, searched, again = (str(tmp_path / f"{name}.wl") for name in ("plain", "none", "searched", "again"))
    assert main(["compile", model, "-o", plain, *FEW]) == 0
    assert main(["compile", model, "-o", none, *FEW, "--search", "0"]) == 0
    capsys.readouterr()
    assert main(["compile", model, "-o", searched, *FEW, "--search", "1000"]) == 0
    printed = capsys.readouterr()
    assert "choices: searched; the step at context 256 takes" in printed.out
    assert "% of L3" in printed.out
    assert "searching gemv" in printed.err
    assert list((tmp_path / "cache" / "winners").glob("gemv-*.json"))
    assert main(["compile", model, "-o", again, *FEW, "--search", "1000"]) == 0
    assert "searching" not in capsys.readouterr().err  # all of it is known
    artifacts = [open_artifact(path) for path in (plain, none, searched, again)]
    assert artifacts[0].digest == artifacts[1].digest
    assert artifacts[2].digest == artifacts[3].digest != artifacts[0].digest
    before, after = artifacts[0].manifest, artifacts[2].manifest
    assert before.search is None
    assert all(chosen.search is None for chosen in before.choices)
    assert after.search is not None
    assert after.search.cycles < after.search.first_cycles
    assert [chosen.shape for chosen in before.choices] == [chosen.shape for chosen in after.choices]
    changed = [chosen for chosen in after.choices if chosen.search and chosen.search.best != chosen.search.first]
    assert changed
    for chosen in changed:
        assert chosen.search is not None
        assert chosen.search.dropped or chosen.choice == chosen.search.best
        assert chosen.search.cycles < chosen.search.first_cycles
        assert chosen.search.timed == chosen.search.candidates
    assert main(["inspect", searched]) == 0
    assert "choices: searched; the step at context 256" in capsys.readouterr().out
    assert main(["inspect", plain]) == 0
    assert "choices: the cost model's" in capsys.readouterr().out


def test_estimate_and_explain_search(model: str, capsys: Capture) -> None:
    assert main(["estimate", model, *FEW, "--context", "100,200", "--search", "1000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["search"]["contexts"] == [100, 200]
    assert found["search"]["cycles"] == sum(step["cycles"] for step in found["steps"])
    assert found["search"]["cycles"] <= found["search"]["first_cycles"]
    assert main(["estimate", model, *FEW, "--context", "100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["search"] is None
    assert main(["explain", model, "down_proj", *FEW, "--context", "200", "--search", "1000", "--json"]) == 0
    (explained,) = json.loads(capsys.readouterr().out)["operations"]
    search = explained["search"]
    assert search["complete"]
    assert len(search["trials"]) == search["candidates"]
    assert min(trial["cycles"] for trial in search["trials"]) * search["bound"]["percent"] == pytest.approx(
        100 * search["bound"]["cycles"]
    )
    assert main(["explain", model, "lm_head", *FEW, "--context", "200", "--search", "1000", "--json"]) == 0
    (logits,) = json.loads(capsys.readouterr().out)["operations"]
    assert {out["rule"] for out in logits["search"]["out"]} == {"nothing is added to logits"}
    assert main(["explain", model, "down_proj", *FEW, "--context", "200", "--search", "1000"]) == 0
    text = capsys.readouterr().out
    assert "searched alone:" in text
    assert "first choice" in text


def test_a_search_makes_another_cached_artifact(model: str) -> None:
    machine = load_machine("gddr6-aim-chip")
    keys = {cache_key(Path(model), machine, 100, search) for search in (0.0, 1.0, 2.0)}
    assert len(keys) == 3
    assert cache_key(Path(model), machine, 100) in keys


@pytest.mark.parametrize("seconds", ["-1", "x", "inf", "nan"])
def test_seconds_that_are_none(seconds: str, model: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["compile", model, "--search", seconds])
    assert stopped.value.code == 2
    assert "is not a number of seconds" in capsys.readouterr().err


def test_an_artifact_is_not_searched(model: str, tmp_path: Path, capsys: Capture) -> None:
    artifact = str(tmp_path / "a.wl")
    assert main(["compile", model, "-o", artifact]) == 0
    assert main(["generate", artifact, "--prompt-length", "3", "--search", "5"]) == 2
    error = capsys.readouterr().err
    assert "error[already-compiled]" in error
    assert "leave out --search" in error
