"""Model files that claim nonsense are refused with one clear error, before anything is allocated by their claims."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.support.models import saved_model, tiny_model, write_config, write_gguf
from wordline.compiler.contents import _tokenizer
from wordline.errors import WordlineError
from wordline.frontend import gguf_model
from wordline.frontend.checkpoint import weights_of
from wordline.frontend.configuration import MAX_LAYERS, config_at
from wordline.frontend.gguf_file import GGUFFile
from wordline.frontend.load import load_model
from wordline.frontend.tokenizer import _generation_config, tokenizer_of

Pair = tuple[str, int, bytes]
Tensor = tuple[str, tuple[int, ...], int, int]

U8, U32, I32, F32, TEXT, ARRAY, U64 = 0, 4, 5, 6, 8, 9, 10
FORMAT_F32, FORMAT_Q4_0 = 0, 2


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def number(value: int) -> bytes:
    return struct.pack("<I", value)


LLAMA: tuple[Pair, ...] = (
    ("general.architecture", TEXT, text("llama")),
    ("llama.context_length", U32, number(64)),
    ("llama.block_count", U32, number(1)),
    ("llama.feed_forward_length", U32, number(64)),
    ("llama.embedding_length", U32, number(64)),
    ("llama.attention.head_count", U32, number(1)),
    ("llama.vocab_size", U32, number(8)),
)


def gguf(
    pairs: Sequence[Pair] = LLAMA, tensors: Sequence[Tensor] = (), n_pairs: int = -1, n_tensors: int = -1
) -> bytes:
    """A file with a kilobyte of zeros for data. Counts can be other than what follows."""
    counts = (len(tensors) if n_tensors < 0 else n_tensors, len(pairs) if n_pairs < 0 else n_pairs)
    parts = [b"GGUF", struct.pack("<IQQ", 3, *counts)]
    for key, kind, value in pairs:
        parts += [text(key), number(kind), value]
    for name, shape, kind, offset in tensors:
        parts += [text(name), number(len(shape)), struct.pack(f"<{len(shape)}Q", *shape[::-1])]
        parts.append(struct.pack("<IQ", kind, offset))
    return b"".join([*parts, bytes(1024)])


def opened(path: Path, data: bytes) -> GGUFFile:
    path.write_bytes(data)
    return GGUFFile(path)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gguf(n_pairs=1 << 63), "the GGUF file is damaged"),
        (gguf(n_tensors=1 << 63), "tensor '' has 0 dimensions"),
        (gguf([("a", TEXT, struct.pack("<Q", 1 << 63))]), "goes past its end"),
        (gguf([("a", ARRAY, struct.pack("<IQ", U8, 1 << 62))]), "cannot be read"),
        (gguf([("a", ARRAY, struct.pack("<IQ", TEXT, 1 << 62))]), "cannot be read"),
        (gguf([("a", ARRAY, struct.pack("<IQ", ARRAY, 1) * 50_000)]), "cannot be read"),
        (gguf([*LLAMA, LLAMA[1]]), "the key 'llama.context_length' appears twice"),
        (gguf([("general.alignment", U32, number(0))]), "alignment is 0, not a power of two"),
        (gguf([("general.alignment", I32, struct.pack("<i", -32))]), "alignment is -32"),
        (gguf([("general.alignment", U32, number(24))]), "alignment is 24"),
        (gguf([("general.alignment", F32, struct.pack("<f", float("inf")))]), "alignment is inf"),
        (gguf([("general.alignment", TEXT, text("32"))]), "alignment is '32'"),
        (gguf([("general.alignment", U64, struct.pack("<Q", 1 << 63))], [("t", (8,), 0, 0)]), "the file has"),
        (gguf(tensors=[("t", (), FORMAT_F32, 0)]), "tensor 't' has 0 dimensions"),
        (gguf(tensors=[("t", (1,) * 65, FORMAT_F32, 0)]), "tensor 't' has 65 dimensions"),
        (gguf(tensors=[("t", (0, 1 << 63), FORMAT_F32, 0)]), "has the shape [0, 9223372036854775808]"),
        (gguf(tensors=[("t", (2, 16), FORMAT_Q4_0, 0)]), "Q4_0 comes in blocks of 32"),
        (gguf(tensors=[("t", (1 << 62, 1 << 62), FORMAT_F32, 0)]), "tensor 't' ends at byte"),
        (gguf(tensors=[("t", (8,), FORMAT_F32, (1 << 64) - 32)]), "tensor 't' ends at byte"),
        (gguf(tensors=[("t", (8,), FORMAT_F32, 4)]), "is not aligned to 32 bytes"),
        (gguf(tensors=[("t", (16,), FORMAT_F32, 32), ("u", (16,), FORMAT_F32, 0)]), "tensor 't' is not aligned"),
        (gguf(tensors=[("t", (8,), FORMAT_F32, 0), ("t", (8,), FORMAT_F32, 32)]), "the tensor 't' appears twice"),
    ],
)
def test_a_directory_that_makes_no_sense(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(WordlineError) as caught:
        opened(tmp_path / "bad.gguf", data)
    assert caught.value.code == "damaged-gguf"
    assert words in caught.value.what


def test_tensors_may_be_listed_in_any_order(tmp_path: Path) -> None:
    file = opened(tmp_path / "a.gguf", gguf(tensors=[("t", (2, 4), FORMAT_F32, 32), ("u", (8,), FORMAT_F32, 0)]))
    assert file.tensors == {"t": (2, 4), "u": (8,)}
    assert list(file.tensors) == ["t", "u"]
    assert file.tensor("t").shape == (2, 4)


@pytest.mark.parametrize(
    ("key", "kind", "value"),
    [
        ("llama.attention.head_count", U32, number(0)),
        ("llama.attention.head_count", U32, number(7)),
        ("llama.attention.head_count", ARRAY, struct.pack("<IQI", U32, 1, 1)),
        ("llama.block_count", U32, number((1 << 32) - 1)),
        ("llama.block_count", U32, number(0)),
        ("llama.vocab_size", TEXT, text("many")),
    ],
)
def test_metadata_that_makes_no_model(tmp_path: Path, key: str, kind: int, value: bytes) -> None:
    pairs = [(key, kind, value) if pair[0] == key else pair for pair in LLAMA]
    file = opened(tmp_path / "bad.gguf", gguf(pairs))
    with pytest.raises(WordlineError) as caught:
        gguf_model.config_of(file)
    assert caught.value.code == "unreadable-config"
    assert caught.value.where == str(tmp_path / "bad.gguf")


SMALL = gguf(tensors=[("token_embd.weight", (8, 8), FORMAT_F32, 0), ("x", (2, 32), FORMAT_Q4_0, 256)])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(4, len(SMALL) - 1025), st.integers(0, 255)), min_size=1, max_size=3))
def test_whatever_is_accepted_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(SMALL)
    for at, value in changes:
        data[at] = value
    # Anything but a WordlineError fails the test.
    with suppress(WordlineError):
        file = opened(tmp_path_factory.mktemp("hurt") / "hurt.gguf", bytes(data))
        for name, shape in file.tensors.items():
            with suppress(WordlineError):
                assert file.tensor(name).shape == shape
        gguf_model.config_of(file)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"model_type":' + b"[" * 100_000, b"\xff\xfe", b"3"])
def test_configurations_that_are_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(WordlineError, match="not a JSON object with a 'model_type'") as caught:
        config_at(tmp_path / "config.json")
    assert caught.value.code == "unreadable-config"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 0),
        ("num_hidden_layers", -1),
        ("num_hidden_layers", MAX_LAYERS + 1),
        ("num_hidden_layers", 10**18),
        ("intermediate_size", 0),
        ("vocab_size", 0),
        ("max_position_embeddings", -4),
        ("rms_norm_eps", float("nan")),
        ("rope_theta", float("inf")),
    ],
)
def test_numbers_that_no_model_has(tmp_path: Path, field: str, value: float) -> None:
    path = write_config(tmp_path / "config.json", **{"model_type": "llama", "num_hidden_layers": 1, field: value})
    with pytest.raises(WordlineError, match=f"{field} is {value}") as caught:
        config_at(path)
    assert caught.value.code == "unreadable-config"


def test_a_rotary_embedding_that_divides_by_zero(tmp_path: Path) -> None:
    path = write_config(tmp_path / "config.json", model_type="llama", num_hidden_layers=1, rope_theta=0.0)
    with pytest.raises(WordlineError, match=r"the table '.*inv_freq' that follows from the configuration") as caught:
        load_model(path)
    assert caught.value.code == "unreadable-config"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_no_numbers(tmp_path: Path, value: float) -> None:
    saved_model(tmp_path / "model", "llama", num_hidden_layers=1)
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"][3] = value
    save_file(tensors, file)
    with pytest.raises(WordlineError, match=r"the weight 'model.norm.weight' holds values") as caught:
        load_model(tmp_path / "model")
    assert caught.value.code == "bad-weights"


@pytest.mark.parametrize(
    "index",
    [
        b"[" * 100_000,
        b"[]",
        json.dumps({"weight_map": ["a"]}).encode(),
        json.dumps({"weight_map": {"a": 3}}).encode(),
        json.dumps({"weight_map": {"a": ["b"]}}).encode(),
        json.dumps({"weight_map": {"a": "../model.safetensors"}}).encode(),
        json.dumps({"weight_map": {"a": "/etc/passwd"}}).encode(),
    ],
)
def test_an_index_that_is_none_or_leads_away(tmp_path: Path, index: bytes) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(index)
    with pytest.raises(WordlineError, match="index of the safetensors files cannot be read") as caught:
        weights_of(tmp_path, {}, {})
    assert caught.value.code == "damaged-safetensors"


@pytest.mark.parametrize("data", [b"[" * 100_000, b"[1]", b"\xff", b"3"])
def test_sampling_defaults_that_are_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "generation_config.json").write_bytes(data)
    with pytest.raises(WordlineError, match=r"generation_config.json cannot be read") as caught:
        _generation_config(tmp_path)
    assert caught.value.code == "unreadable-config"


def test_tokens_that_the_model_does_not_know(tmp_path: Path) -> None:
    """The byte tokenizer begins with token 256 and ends with 257."""
    path = tmp_path / "tiny.gguf"
    write_gguf(path, tiny_model("llama"), "llama")
    file = GGUFFile(path)
    config = gguf_model.config_of(file)
    config.vocab_size = 257
    files = tokenizer_of(path, config, file.metadata)
    assert files is not None
    assert files["eos_token_ids"] == []
    model = load_model(path, bind=False)
    model.config["vocab_size"] = 256
    with pytest.raises(WordlineError, match="begins texts is number 256, the model knows 256") as caught:
        _tokenizer(model)
    assert caught.value.code == "unreadable-tokenizer"
