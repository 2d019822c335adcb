from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from tests.support.models import SHAPE, VOCABULARY, saved_model, worst_difference, write_config
from wordline.errors import WordlineError
from wordline.frontend.load import load_model

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models") / "tiny"
    saved_model(directory, "llama", num_hidden_layers=1)
    return directory


@pytest.fixture
def directory(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "tiny"))


def refused(source: Path) -> WordlineError:
    with pytest.raises(WordlineError) as caught:
        load_model(source)
    return caught.value


def rewrite(directory: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    save_file(change(load_file(directory / WEIGHTS)), directory / WEIGHTS)


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    error = refused(tmp_path / "nothing.gguf")
    assert error.code == "missing-model"
    missing = tmp_path / "nothing.gguf"
    assert (
        str(error) == f"there is no model at '{missing}'\n  do: give a .gguf file, a model directory or a config.json"
    )


def test_a_directory_without_configuration(tmp_path: Path) -> None:
    error = refused(tmp_path)
    assert error.code == "missing-model"
    assert error.what == "the model directory has no config.json"


@pytest.mark.parametrize("text", ["{", "[]", "{}", '"llama"', '{"model_type": 3}'])
def test_a_configuration_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert refused(path).code in ("unreadable-config", "unsupported-architecture")


@pytest.mark.parametrize(
    ("fields", "code", "what"),
    [
        ({"model_type": "zzz"}, "unsupported-architecture", "'zzz' is not an architecture that transformers knows"),
        ({"model_type": "t5"}, "unsupported-architecture", "'t5' is not a causal language model"),
        ({"model_type": "llama", "hidden_size": "x"}, "unreadable-config", "'hidden_size'"),
        ({"model_type": "llama", "hidden_size": 100, "num_attention_heads": 7}, "unreadable-config", "not a multiple"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "foo"}}, "unreadable-config", "cannot be built"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "export-failed", "traced"),
    ],
    ids=["unknown", "encoder-decoder", "type", "heads", "rope", "data-dependent"],
)
def test_configurations_that_cannot_be_used(tmp_path: Path, fields: dict[str, Any], code: str, what: str) -> None:
    error = refused(write_config(tmp_path / "config.json", **{"num_hidden_layers": 1, **fields}))
    assert error.code == code
    assert what in error.what
    assert error.remedy is not None


def test_failing_export_keeps_the_terminal_clean(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0}
    error = refused(write_config(tmp_path / "config.json", model_type="llama", num_hidden_layers=1, rope_scaling=rope))
    assert error.where is not None
    assert error.where.startswith("modeling_llama.py:")
    assert "def forward" not in "".join(capfd.readouterr())


def test_all_unsupported_operations_are_reported_at_once(tmp_path: Path) -> None:
    error = refused(write_config(tmp_path / "config.json", **{"model_type": "cohere", **SHAPE}))
    assert error.code == "unsupported-operations"
    lines = error.what.splitlines()
    assert lines[0].endswith("cannot be lowered:")
    total = int(lines[0].split()[0])
    counts = [int(line.rsplit(", ", 1)[1].split()[0]) if line.endswith(" times") else 1 for line in lines[1:]]
    assert sum(counts) == total > 10
    (repeat,) = (line for line in lines if "repeat_interleave" in line)
    assert "aten.repeat_interleave.self_int -> float32[batch, 1, 16] at model.rotary_emb, modeling_cohere.py:" in repeat
    (strided,) = (line for line in lines if "aten.slice" in line and "float32[batch, 4, 1, 8]" in line)
    assert strided.endswith("(step 2), 4 times")
    assert "at model.layers.*.self_attn, modeling_cohere.py:" in strided


@pytest.mark.parametrize(
    ("model_type", "fields", "what"),
    [
        ("gemma2", {}, "attention with softcap"),
        ("bert", {"hidden_size": 64, "num_attention_heads": 4}, "attention with positions after the current one"),
    ],
)
def test_attention_of_another_kind_is_refused(
    tmp_path: Path, model_type: str, fields: dict[str, Any], what: str
) -> None:
    fields = {"num_hidden_layers": 1, **fields}
    error = refused(write_config(tmp_path / "config.json", model_type=model_type, **fields))
    assert error.code == "unsupported-operations"
    assert what in error.what


def test_no_weights(directory: Path) -> None:
    (directory / WEIGHTS).unlink()
    error = refused(directory)
    assert error.code == "missing-weights"
    assert error.what == "the model directory has no model.safetensors"
    assert load_model(directory, bind=False).metadata["name"] == "tiny"
    assert load_model(directory / "config.json").metadata["name"] == "tiny"


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_cut_weights(directory: Path, keep: int) -> None:
    data = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(data[:keep])
    error = refused(directory)
    assert error.code == "damaged-safetensors"
    assert error.where == str(directory / WEIGHTS)
    assert error.remedy is not None


def test_a_missing_tensor(directory: Path) -> None:
    rewrite(directory, lambda weights: {name: data for name, data in weights.items() if "up_proj" not in name})
    error = refused(directory)
    assert error.code == "missing-weights"
    assert "lack 1 of the model's 12 tensors, the first is 'model.layers.0.mlp.up_proj.weight'" in error.what


def test_a_tensor_of_another_shape(directory: Path) -> None:
    def cut(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {**weights, "model.norm.weight": torch.zeros(3)}

    rewrite(directory, cut)
    error = refused(directory)
    assert error.code == "wrong-shape"
    assert error.what == "tensor 'model.norm.weight' has shape [3], the model needs [64]"


def test_bf16_weights_in_several_files(tmp_path: Path) -> None:
    model = saved_model(tmp_path, "qwen3").to(torch.bfloat16)
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, (1, 6))
    assert worst_difference(load_model(tmp_path).graph, model.to(torch.float32), tokens) < 2e-5

    index = tmp_path / "model.safetensors.index.json"
    lost = sorted(tmp_path.glob("*.safetensors"))[0]
    lost.unlink()
    assert refused(tmp_path).what == f"the model directory has no {lost.name}"
    index.write_text("{}")
    assert refused(tmp_path).code == "damaged-safetensors"


def test_a_tied_tensor_under_its_other_name(tmp_path: Path) -> None:
    model = saved_model(tmp_path, "llama", tie_word_embeddings=True)

    def rename(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name.replace("model.embed_tokens", "lm_head"): data for name, data in weights.items()}

    rewrite(tmp_path, rename)
    tokens = np.random.default_rng(2).integers(0, VOCABULARY, (1, 4))
    assert worst_difference(load_model(tmp_path).graph, model, tokens) < 2e-5


def add_tokenizer(directory: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "<s>": 2, "</s>": 3}, unk_token="a"))
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{{ messages[0]['content'] }}",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))


def test_tokenizer_and_generation_defaults_of_a_directory(directory: Path) -> None:
    add_tokenizer(directory)
    defaults = {"eos_token_id": [3, 9], "temperature": 0.6, "top_p": 0.9, "do_sample": True, "max_length": 99}
    (directory / "generation_config.json").write_text(json.dumps(defaults))
    files = load_model(directory, bind=False).tokenizer
    assert files is not None
    assert Tokenizer.from_str(files["tokenizer_json"]).token_to_id("b") == 1
    assert files["chat_template"] == "{{ messages[0]['content'] }}"
    assert (files["bos_token"], files["eos_token"], files["eos_token_ids"]) == ("<s>", "</s>", [3, 9])
    assert files["generation"] == {"temperature": 0.6, "top_p": 0.9, "do_sample": True}


def test_a_directory_without_tokenizer(directory: Path) -> None:
    assert load_model(directory, bind=False).tokenizer is None


@pytest.mark.parametrize(
    ("name", "code"), [("tokenizer.json", "unreadable-tokenizer"), ("generation_config.json", "unreadable-config")]
)
def test_damaged_tokenizer_files(directory: Path, name: str, code: str) -> None:
    add_tokenizer(directory)
    (directory / name).write_text("{")
    assert refused(directory).code == code
