"""Whole models: the graph of a decode step computes what transformers computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.models import LLAMA3_ROPE, SHAPE, VOCABULARY, saved_model, worst_difference, write_config
from wordline.frontend.load import ImportedModel, load_model
from wordline.graph.canonicalise import canonicalise
from wordline.graph.registry import lookup
from wordline.graph.text import print_graph
from wordline.graph.verifier import verify

TOKENS = np.random.default_rng(5).integers(0, VOCABULARY, (2, 24))
TOLERANCE = 2e-5  # fp32 sums in another order; logits are of the order of 3

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3-rope": ("llama", {"rope_scaling": LLAMA3_ROPE}),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", {"sliding_window": 7}),
    "gemma3": ("gemma3_text", {"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]}),
    "gpt2": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}),
}


def attentions(model: ImportedModel) -> list[dict[str, Any]]:
    return [dict(op.attrs) for op in model.graph.ops if op.kind == "attention"]


@pytest.mark.parametrize("name", MODELS)
def test_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    model_type, fields = MODELS[name]
    reference = saved_model(tmp_path, model_type, **fields)
    model = load_model(tmp_path)
    verify(model.graph)
    assert worst_difference(model.graph, reference, TOKENS) < TOLERANCE
    assert print_graph(canonicalise(model.graph)) == print_graph(model.graph)
    assert [attention["layer"] for attention in attentions(model)] == [0, 1]
    assert model.metadata["architecture"] == model_type
    assert model.metadata["max_context"] == 256
    assert model.metadata["parameters"] == sum(parameter.numel() for parameter in reference.parameters())


def test_a_llama_layer_is_nothing_but_its_work(tmp_path: Path) -> None:
    saved_model(tmp_path, "llama")
    model = load_model(tmp_path)
    kinds = Counter(op.kind for op in model.graph.ops)
    layers = 2
    assert kinds["linear"] == 7 * layers + 1
    assert kinds["attention"] == kinds["sigmoid"] == layers
    assert kinds["rotate_half"] == 2 * layers
    assert kinds["rsqrt"] == kinds["reduce_sum"] == 2 * layers + 1
    assert kinds["cos"] == kinds["sin"] == kinds["cast"] == kinds["embedding"] == kinds["reduce_argmax"] == 1
    views = {kind for kind in kinds if lookup(kind).group == "view"}
    assert views == {"reshape", "rotate_half"}
    # One reshape for each of q, k and v, for the rotary tables (2), token, position, logits and next token.
    assert kinds["reshape"] == 3 * layers + 6
    # The rotary angles are one product of the position with one table.
    users = model.graph.users()
    cast = next(op for op in model.graph.ops if op.kind == "cast")
    (angle,) = users[cast.result]
    assert angle.kind == "mul"
    assert sorted(op.kind for op in users[angle.result]) == ["cos", "sin"]


def test_attention_attributes(tmp_path: Path) -> None:
    saved_model(tmp_path, "mistral", sliding_window=7, num_hidden_layers=1)
    assert attentions(load_model(tmp_path, bind=False)) == [
        {"layer": 0, "scale": 0.25, "heads": 4, "kv_heads": 2, "window": 7}
    ]


def test_windows_differ_by_layer(tmp_path: Path) -> None:
    saved_model(tmp_path, "gemma3_text", sliding_window=7, layer_types=["sliding_attention", "full_attention"])
    assert [attention.get("window") for attention in attentions(load_model(tmp_path, bind=False))] == [7, None]


def test_grouped_queries_are_never_repeated(tmp_path: Path) -> None:
    saved_model(tmp_path, "llama", num_attention_heads=8, num_key_value_heads=1)
    graph = load_model(tmp_path, bind=False).graph
    assert all(op.kind not in ("broadcast", "concat") for op in graph.ops)
    (attention, *_) = (op for op in graph.ops if op.kind == "attention")
    assert [value.type.shape[1] for value in attention.operands] == [8, 1, 1]


def test_tied_embeddings_are_one_constant(tmp_path: Path) -> None:
    saved_model(tmp_path, "llama", tie_word_embeddings=True)
    graph = load_model(tmp_path).graph
    tables = [op for op in graph.ops if op.kind == "constant" and op.result.type.shape == (VOCABULARY, 64)]
    (table,) = tables
    assert [op.kind for op in graph.users()[table.result]] == ["embedding", "linear"]


def test_every_operation_knows_its_source(tmp_path: Path) -> None:
    saved_model(tmp_path, "llama", num_hidden_layers=1)
    graph = load_model(tmp_path, bind=False).graph
    locations = {op.kind: op.loc for op in graph.ops}
    assert locations["attention"].startswith("model.layers.0.self_attn, modeling_llama.py:")
    assert locations["sigmoid"].startswith("model.layers.0.mlp.act_fn, ")
    assert all(op.loc for op in graph.ops if op.kind != "constant")


def test_unbound_weights_give_the_same_graph(tmp_path: Path) -> None:
    saved_model(tmp_path, "gemma3_text", layer_types=["sliding_attention", "full_attention"])
    bound = load_model(tmp_path)
    unbound = load_model(tmp_path, bind=False)
    bare = load_model(tmp_path / "config.json")
    assert print_graph(bound.graph) == print_graph(unbound.graph)
    assert print_graph(unbound.graph, locations=False) == print_graph(bare.graph, locations=False)
    for name, constant in bare.graph.constants.items():
        assert (constant.data is None) == (not constant.inline), name


def test_config_describes_the_model(tmp_path: Path) -> None:
    saved_model(tmp_path, "llama")
    config = load_model(tmp_path, bind=False).config
    assert {key: config[key] for key in SHAPE} == SHAPE


def shape_of(layers: int, hidden: int, heads: int, kv_heads: int, ffn: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
        "torch_dtype": "float16",
    }


@pytest.mark.parametrize(
    ("fields", "parameters"),
    [
        pytest.param(shape_of(32, 4096, 32, 32, 11008), 6_738_415_616, id="llama-2-7b"),
        pytest.param(shape_of(80, 8192, 64, 8, 28672), 68_976_648_192, id="llama-2-70b", marks=pytest.mark.slow),
    ],
)
def test_big_models_load_from_their_configuration(tmp_path: Path, fields: dict[str, Any], parameters: int) -> None:
    model = load_model(write_config(tmp_path / "config.json", **fields))
    verify(model.graph)
    assert model.metadata["parameters"] == parameters
    kinds = Counter(op.kind for op in model.graph.ops)
    assert kinds["linear"] == 7 * fields["num_hidden_layers"] + 1
    assert kinds["attention"] == fields["num_hidden_layers"]
    assert sum(constant.data is not None for constant in model.graph.constants.values()) == 1
    assert model.tokenizer is None
