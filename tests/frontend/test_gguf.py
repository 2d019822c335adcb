from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Template
from tokenizers import Tokenizer

from tests.support.models import VOCABULARY, tiny_model, worst_difference, write_gguf
from wordline.errors import WordlineError
from wordline.frontend.gguf_file import GGUFFile
from wordline.frontend.load import load_model

TOKENS = np.random.default_rng(6).integers(0, VOCABULARY, (2, 12))


@pytest.mark.parametrize(
    ("model_type", "format", "fields"),
    [
        ("llama", GGMLQuantizationType.F32, {}),
        ("llama", GGMLQuantizationType.F16, {"tie_word_embeddings": True}),
        ("llama", GGMLQuantizationType.Q8_0, {}),
        ("llama", GGMLQuantizationType.BF16, {}),
        ("qwen2", GGMLQuantizationType.Q4_1, {}),
        ("qwen3", GGMLQuantizationType.F32, {}),
    ],
    ids=lambda item: item if isinstance(item, str) else getattr(item, "name", ""),
)
def test_a_gguf_model_computes_what_its_weights_say(
    tmp_path: Path, model_type: str, format: GGMLQuantizationType, fields: dict[str, Any]
) -> None:
    reference = tiny_model(model_type, **fields)
    path = tmp_path / "tiny.gguf"
    weights = write_gguf(path, reference, model_type, format)
    reference.load_state_dict({name: torch.from_numpy(data) for name, data in weights.items()}, strict=False)
    reference.tie_weights()
    model = load_model(path)
    assert worst_difference(model.graph, reference, TOKENS) < 2e-5
    assert model.metadata["name"] == "tiny"


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    write_gguf(path, tiny_model("llama"), "llama")
    return path


def test_metadata_and_directory(tiny_file: Path) -> None:
    file = GGUFFile(tiny_file)
    reader = gguf.GGUFReader(tiny_file)
    assert file.metadata["llama.rope.freq_base"] == reader.fields["llama.rope.freq_base"].contents()
    assert file.metadata["tokenizer.ggml.tokens"] == reader.fields["tokenizer.ggml.tokens"].contents()
    assert file.metadata["tokenizer.ggml.token_type"] == reader.fields["tokenizer.ggml.token_type"].contents()
    assert set(file.tensors) == {tensor.name for tensor in reader.tensors}
    assert file.tensors["blk.0.ffn_down.weight"] == (64, 96)
    tensor = next(tensor for tensor in reader.tensors if tensor.name == "blk.1.attn_v.weight")
    np.testing.assert_array_equal(file.tensor(tensor.name), tensor.data)
    with pytest.raises(KeyError):
        file.tensor("blk.7.attn_v.weight")


def test_tokenizer_needs_no_transformers(tiny_file: Path) -> None:
    files = load_model(tiny_file, bind=False).tokenizer
    assert files is not None
    tokenizer = Tokenizer.from_str(files["tokenizer_json"])
    ids = tokenizer.encode("<s>hé</s>", add_special_tokens=False).ids
    assert ids[0] == 256
    assert ids[-1] == 257
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hé"
    assert (files["bos_token"], files["eos_token"], files["eos_token_ids"]) == ("<s>", "</s>", [257])
    assert files["chat_template"] is not None
    text = Template(files["chat_template"]).render(messages=[{"content": "hi"}], bos_token="<s>", eos_token="</s>")
    assert text == "<s>hi</s>"
    assert files["generation"] == {}


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_a_file_cut_anywhere_is_refused(tmp_path_factory: pytest.TempPathFactory, tiny_file: Path, part: float) -> None:
    data = tiny_file.read_bytes()
    path = tmp_path_factory.mktemp("cut") / "cut.gguf"
    path.write_bytes(data[: int(part * len(data))])
    with pytest.raises(WordlineError) as caught:
        GGUFFile(path)
    assert caught.value.code in ("damaged-gguf", "not-gguf")
    assert caught.value.where == str(path)


def test_a_cut_file_says_what_is_missing(tmp_path: Path, tiny_file: Path) -> None:
    data = tiny_file.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[:-1000])
    with pytest.raises(WordlineError) as caught:
        load_model(path)
    text = str(caught.value)
    assert f"ends at byte {len(data)}, the file has {len(data) - 1000} bytes" in text
    assert str(path) in text
    assert "get the file again" in text


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 4000), st.integers(0, 255))
def test_a_damaged_header_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, tiny_file: Path, at: int, value: int
) -> None:
    data = bytearray(tiny_file.read_bytes())
    data[at] = value
    path = tmp_path_factory.mktemp("hurt") / "hurt.gguf"
    path.write_bytes(data)
    # Anything but a WordlineError fails the test.
    with suppress(WordlineError):
        GGUFFile(path)


@pytest.mark.parametrize(
    ("changes", "code", "what"),
    [
        ({"rope_scaling": gguf.RopeScalingType.YARN}, "unsupported-gguf", "scales its rotary embedding .yarn."),
        ({"extra": "rope_freqs.weight"}, "unsupported-gguf", "scales its rotary embedding .by frequency factors."),
        (
            {"extra": "blk.0.attn_sinks.weight"},
            "unsupported-gguf",
            "no place for 1 tensors .* 'blk.0.attn_sinks.weight'",
        ),
        ({"omit": "blk.1.ffn_up.weight"}, "missing-weights", "lacks 1 of the model's .*'model.layers.1.mlp.up_proj"),
    ],
    ids=["yarn", "factors", "sinks", "hole"],
)
def test_what_the_model_cannot_use_is_refused(tmp_path: Path, changes: dict[str, Any], code: str, what: str) -> None:
    path = tmp_path / "odd.gguf"
    write_gguf(path, tiny_model("llama"), "llama", **changes)
    with pytest.raises(WordlineError, match=what) as caught:
        load_model(path)
    assert caught.value.code == code
    assert caught.value.remedy is not None


def header(path: Path, architecture: str, version: int = 3) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    data = bytearray(path.read_bytes())
    data[4] = version
    path.write_bytes(data)
    return path


def test_other_architectures_are_named(tmp_path: Path) -> None:
    with pytest.raises(WordlineError, match="a model of the architecture 'bert'") as caught:
        load_model(header(tmp_path / "bert.gguf", "bert"))
    assert caught.value.code == "unsupported-architecture"
    assert "llama, qwen2, qwen3" in str(caught.value)


def test_missing_facts_are_named(tmp_path: Path) -> None:
    with pytest.raises(WordlineError, match="does not say hidden_size, intermediate_size") as caught:
        load_model(header(tmp_path / "bare.gguf", "llama"))
    assert caught.value.code == "damaged-gguf"


def test_other_versions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WordlineError, match="GGUF version 9; versions 2 and 3 can be read") as caught:
        load_model(header(tmp_path / "new.gguf", "llama", version=9))
    assert caught.value.code == "unsupported-gguf"


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("hello")
    with pytest.raises(WordlineError, match="not a GGUF file") as caught:
        load_model(path)
    assert caught.value.code == "not-gguf"
