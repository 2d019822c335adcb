"""Models traced in part and repeated are the models traced whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.models import LLAMA3_ROPE, SHAPE, saved_model, write_config
from wordline.frontend import load
from wordline.frontend.export import export_decode_step
from wordline.frontend.load import ImportedModel, load_config, load_model
from wordline.frontend.repeat import layer_of, renamed, repeat_layers
from wordline.graph.ir import Graph, Op
from wordline.graph.text import print_graph
from wordline.graph.verifier import verify

LAYERS = 6
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama"},
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True},
    "llama-biased": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "llama3-rope": {"model_type": "llama", "rope_scaling": LLAMA3_ROPE},
    "qwen2": {"model_type": "qwen2"},
    "qwen3": {"model_type": "qwen3"},
    "qwen3-windows": {"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 4},
    "mistral": {"model_type": "mistral", "sliding_window": 7},
}


def imported(fields: dict[str, Any], layers: int = LAYERS) -> ImportedModel:
    return load_config("tiny", {**SHAPE, "num_hidden_layers": layers, **fields})


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Layers of every model that is traced."""
    counts: list[int] = []

    def counting(config: Any) -> Any:
        counts.append(config.num_hidden_layers)
        return export_decode_step(config)

    monkeypatch.setattr(load, "export_decode_step", counting)
    return counts


@pytest.mark.parametrize("name", MODELS)
def test_the_graph_is_that_of_the_whole_trace(name: str, traced: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    short = imported(MODELS[name])
    # Layers that differ are traced one by one.
    assert traced == [LAYERS if name == "qwen3-windows" else 3]
    monkeypatch.setattr(load, "layers_are_alike", lambda config: False)
    whole = imported(MODELS[name])
    assert traced[1:] == [LAYERS]
    assert print_graph(short.graph) == print_graph(whole.graph)
    assert [op.loc for op in short.graph.ops] == [op.loc for op in whole.graph.ops]
    assert [(n, c.type) for n, c in short.graph.constants.items()] == [
        (n, c.type) for n, c in whole.graph.constants.items()
    ]
    assert short.metadata == whole.metadata
    verify(short.graph)


def test_short_models_and_models_with_weights_are_traced_whole(traced: list[int], tmp_path: Path) -> None:
    imported(MODELS["llama"], layers=3)
    path = write_config(tmp_path / "config.json", **{**SHAPE, **MODELS["llama"], "num_hidden_layers": 5})
    load_model(path, bind=False, layers=2)
    saved_model(tmp_path, "llama", num_hidden_layers=5)
    load_model(tmp_path)
    assert traced == [3, 2, 5]


def changed(graph: Graph, at: int, **attrs: Any) -> Graph:
    """The graph with other attributes of operation ``at``."""
    ops = list(graph.ops)
    op = ops[at]
    ops[at] = Op(op.kind, op.operands, {**op.attrs, **attrs}, op.results, op.loc)
    return Graph(graph.name, graph.inputs, tuple(ops), graph.outputs, graph.constants)


def test_layers_that_do_not_repeat_are_noticed() -> None:
    graph = imported(MODELS["llama"], layers=3).graph
    assert repeat_layers(graph, 5) is not None
    attentions = [index for index, op in enumerate(graph.ops) if op.kind == "attention"]
    assert repeat_layers(changed(graph, attentions[2], scale=0.5), 5) is None
    assert repeat_layers(changed(graph, attentions[1], layer=2), 5) is None
    assert repeat_layers(imported(MODELS["llama"], layers=2).graph, 5) is None
    # A result that looks into the second layer would look into the wrong one.
    outputs = {**graph.outputs, "logits": graph.ops[attentions[1]].result}
    assert repeat_layers(Graph(graph.name, graph.inputs, graph.ops, outputs, graph.constants), 5) is None


def test_a_trace_that_does_not_repeat_is_traced_whole(traced: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "repeat_layers", lambda graph, layers: None)
    assert len([op for op in imported(MODELS["llama"]).graph.ops if op.kind == "attention"]) == LAYERS
    assert traced == [3, LAYERS]


def test_numbers_of_layers_in_names() -> None:
    assert renamed("model.layers.1.mlp, modeling.py:12", 2) == "model.layers.3.mlp, modeling.py:12"
    assert renamed("model.layers.1, modeling.py:12", 9) == "model.layers.10, modeling.py:12"
    assert renamed("model.norm.1", 2) == "model.norm.1"
    assert layer_of("model.layers.12.input_layernorm.weight") == 12
    assert layer_of("model.embed_tokens.weight") is None
