"""``wordline explain``: candidates, margins, exclusions, and what bounds the timed program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import SHAPE, write_config
from wordline.cli import main


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    folder = tmp_path / "tiny"
    folder.mkdir()
    return str(write_config(folder / "config.json", model_type="llama", **SHAPE))


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["explain", *argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_every_operation_has_its_candidates(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, tiny)
    assert found["context"] == 256  # the model's maximum is below the default
    kinds = {entry["kind"] for entry in found["operations"]}
    assert kinds == {"embedding", "linear", "attention", "vector"}
    for entry in found["operations"]:
        candidates = {c["name"]: c for c in entry["candidates"]}
        layouts = {"banks, K in 2 parts"} if entry["kind"] == "linear" else set()
        assert set(candidates) == {"banks", "vector", "host"} | layouts
        chosen = candidates[entry["chosen"]]
        assert chosen["engine"] == entry["engine"]
        assert chosen["excluded"] is None
        assert chosen["rule"] is None
        for c in candidates.values():
            assert (c["excluded"] is None) == (c["rule"] is None)
            if c["terms"]:
                assert c["cost_ns"] == pytest.approx(sum(term["ns"] for term in c["terms"]))
                assert all(term["constants"] for term in c["terms"])
            else:
                assert c["cost_ns"] is None
        assert entry["margin"] == pytest.approx(candidates[entry["runner_up"]]["cost_ns"] / chosen["cost_ns"])
        assert len(entry["ops"]) == entry["count"]
    terms = {
        entry["kind"]: [t["name"] for c in entry["candidates"] if c["name"] == entry["chosen"] for t in c["terms"]]
        for entry in found["operations"]
    }
    assert terms["attention"] == ["MAC", "row turns", "register visits"]
    assert terms["linear"] == [*terms["attention"], "partial sums"]
    assert terms["vector"] == ["port", "latency", "overhead"]
    host = next(c for c in found["operations"][0]["candidates"] if c["engine"] == "host")
    assert [t["name"] for t in host["terms"]] == ["call", "link", "stream"]


def test_the_timed_program_says_what_binds(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, tiny)
    linear = next(e for e in found["operations"] if e["op"] == "linear model.layers.*.mlp.gate_proj")
    assert linear["count"] == 2
    assert linear["shared_with"] == ["linear model.layers.*.mlp.up_proj"]
    timed = linear["timed"]
    assert sum(b["ns_all"] for b in timed["bounds"]) == pytest.approx(timed["channel_ns_all"])
    assert {"mac", "row_turn"} <= {b["cause"] for b in timed["bounds"]}
    assert 0 < timed["channel_ns_all"] < found["ms_per_token"] * 1e6
    vector = next(e for e in found["operations"] if e["op"] == "mul model.layers.*.mlp")
    cost = next(c["cost_ns"] for c in vector["candidates"] if c["engine"] == "vector")
    # The passes take what dispatch says; waits, signals and flags add an issue slot each.
    slots = vector["timed"]["vector_busy_ns_all"] - vector["count"] * cost
    assert 0 <= slots <= vector["count"] * 10 * 0.5


def test_a_pattern_selects_and_shows_the_terms(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", tiny, "o_proj"]) == 0
    out = capsys.readouterr().out
    assert "linear model.layers.*.self_attn.o_proj (2x): banks, " in out
    assert "weights of 8192 bytes do not pass through scratch in this version" in out
    assert "timing.nMODCH, nCCDS, bank_unit.accumulators, buffer.columns" in out
    assert "gate_proj" not in out
    found = document(capsys, tiny, "linear *.1.*")
    assert {op for e in found["operations"] for op in e["ops"]} >= {"linear model.layers.1.self_attn.q_proj"}
    assert main(["explain", tiny, "conv"]) == 2
    error = capsys.readouterr().err
    assert "error[unknown-op]: no operation of tiny matches 'conv'" in error
    assert "operations are: embedding model.embed_tokens, " in error


def test_a_page_is_written(tiny: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "page.html"
    assert main(["explain", tiny, "--html", str(target)]) == 0
    assert f"{target}: tiny on gddr6-aim-chip" in capsys.readouterr().out
    text = target.read_text()
    assert text.startswith("<!doctype html>")
    assert "attention model.layers.*.self_attn: banks (2x" in text
    assert "host calls are not generated" in text
    assert "<script" not in text
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    assert main(["explain", tiny, "--html", str(tmp_path)]) == 2
    assert "error[bad-output]" in capsys.readouterr().err
