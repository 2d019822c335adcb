"""``wordline estimate``: models by shape, timed for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import SHAPE, write_config
from wordline.cli import main
from wordline.compiler.published import published_config, published_names
from wordline.sim.shapes import ModelShape, known_shapes


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["estimate", *argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    folder = tmp_path / "tiny"
    folder.mkdir()
    return str(write_config(folder / "config.json", model_type="llama", **SHAPE))


def test_a_config_is_timed_at_several_contexts(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, tiny, "--context", "200,16")
    assert found["model"] == {
        "name": "tiny",
        "architecture": "llama",
        "parameters": found["model"]["parameters"],
        "layers": 2,
        "model_layers": 2,
    }
    assert found["what_if"] is None
    assert [step["context"] for step in found["steps"]] == [16, 200]
    assert found["context"] == found["compiled_for_context"] == 200
    assert found["ms_per_token"] == found["steps"][-1]["ms_per_token"]
    assert found["joules_per_token"] == found["steps"][-1]["joules_per_token"]
    for step in found["steps"]:
        total = step["ms_per_token"]
        assert sum(step["causes_ms"].values()) == pytest.approx(total)
        for parts in (step["kinds"], step["operations"]):
            assert sum(part["channel_ms"] for part in parts) == pytest.approx(total)
            assert sum(part["vector_busy_ms"] for part in parts) == pytest.approx(step["limits_ms"]["vector_unit"])
            assert sum(part["joules"] for part in parts) == pytest.approx(step["joules_per_token"])
            kinds = [part["energy_kinds_j"] for part in parts]
            for kind, joules in step["energy"]["kinds_j"].items():
                assert sum(table.get(kind, 0.0) for table in kinds) == pytest.approx(joules, abs=1e-18)
        assert (
            step["joules_per_token"] == step["energy"]["joules"] == pytest.approx(step["energy"]["watts"] * total / 1e3)
        )
        assert 0 < step["percent"]["L0"] < step["percent"]["L2"] < 100
        assert step["percent"]["L2"] <= step["percent"]["larger_of_L2_and_vector_unit"] <= 100
        assert step["percent"]["L2"] == pytest.approx(100 * step["limits_ms"]["L2"] / total)
    assert found["steps"][0]["cycles"] <= found["steps"][1]["cycles"]
    assert {"gemv", "attention", "vector", "start and end"} <= {part["name"] for part in found["steps"][0]["kinds"]}
    names = {part["name"]: part["count"] for part in found["steps"][0]["operations"]}
    assert names["linear model.layers.*.self_attn.q_proj"] == 2


def test_the_memory_plan_adds_up(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    memory = document(capsys, tiny, "--context", "200")["memory"]
    assert sum(owner["rows"] for owner in memory["owners"]) == memory["weight_rows"]
    assert sum(owner["bytes"] for owner in memory["owners"]) == memory["weight_bytes"]
    assert all(0 < owner["used_bytes"] <= owner["bytes"] for owner in memory["owners"])
    assert memory["weight_bytes"] * memory["device_rows"] == memory["device_bytes"] * memory["weight_rows"]
    assert 0 < memory["scratch_live"] <= memory["scratch_peak"] <= memory["scratch_bytes"]


def test_layers_compiles_the_first_ones_and_says_so(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, tiny, "--layers", "1", "--context", "64")
    assert found["what_if"] == "only the first 1 of 2 layers were compiled; nothing is scaled"
    assert found["model"]["layers"] == 1
    assert main(["estimate", tiny, "--layers", "1", "--context", "64"]) == 0
    text = capsys.readouterr().out
    assert "what if: only the first 1 of 2 layers were compiled; nothing is scaled" in text
    assert "by operation" in text
    assert main(["estimate", tiny, "--layers", "3"]) == 2
    assert "error[bad-layers]: 3 layers are wanted, the model has 2" in capsys.readouterr().err


def test_a_machine_constant_changes_the_time(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    normal = document(capsys, tiny, "--context", "64")
    slower = document(capsys, tiny, "--context", "64", "--set", "timing.nRP=64")
    assert slower["machine"]["hash"] != normal["machine"]["hash"]
    assert slower["ms_per_token"] > normal["ms_per_token"]


def test_wrong_models_and_contexts_are_named(tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "Llama-2-8B"]) == 2
    assert "use Llama-3-8B or Llama-2-7B" in capsys.readouterr().err
    assert main(["estimate", "no/config.json"]) == 2
    assert "error[missing-model]" in capsys.readouterr().err
    assert main(["estimate", tiny, "--context", "64,257"]) == 2
    assert "error[bad-context]: context 257 is outside 1..256" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["estimate", tiny, "--context", "64,x"])
    assert "'x' is not a positive whole number" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Llama-2-13B", "Qwen3-32B"])
def test_weights_that_exceed_the_device_are_refused_at_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", name, "--machine", "gddr6-aim-card"]) == 2
    error = capsys.readouterr().err
    assert f"error[device-full]: {name} needs " in error
    assert "model.layers.*.mlp.down_proj.weight" in error
    assert "generating kernels" not in error


@pytest.mark.parametrize("name", published_names())
def test_published_configs_have_the_published_shapes(name: str, tmp_path: Path) -> None:
    known, fields = published_config(name.lower())
    assert known == name
    path = write_config(tmp_path / f"{name}.json", **fields)
    assert ModelShape.from_config(path) == known_shapes()[name]
    assert {"model_type", "rope_theta", "rms_norm_eps", "tie_word_embeddings", "max_position_embeddings"} <= set(fields)


def test_every_known_shape_has_a_config() -> None:
    assert set(published_names()) == set(known_shapes())


def test_a_published_7b_is_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "llama-2-7b", "--machine", "gddr6-aim-card", "--context", "128,2048")
    assert found["model"]["parameters"] == 6738415616
    assert found["memory"]["weight_bytes"] > 2 * 6738415616
    assert 80 < found["percent"]["L2"] < 100
    assert found["steps"][0]["cycles"] < found["steps"][1]["cycles"]
    assert found["steps"][0]["kv"]["bytes"] < found["steps"][1]["kv"]["bytes"]


def test_a_model_that_does_not_fit_names_the_owners(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "Qwen3-8B", "--layers", "4", "--machine", "gddr6-aim-chip"]) == 2
    error = capsys.readouterr().err
    assert "error[device-full]" in error
    assert "model.embed_tokens.weight 1.24 GB" in error
    assert "mlp.gate_proj.weight" in error
    assert "KV cache of the full context" in error
