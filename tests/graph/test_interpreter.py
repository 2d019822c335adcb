from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support.graphs import BATCH, decode_inputs
from wordline.errors import WordlineError
from wordline.graph.builder import GraphBuilder
from wordline.graph.interpreter import Interpreter
from wordline.graph.ir import Constant, Graph
from wordline.graph.types import TensorType

HEADS, KV_HEADS, HEAD, TOKENS = 4, 2, 8, 40


def attention_graph(window: int | None = None) -> tuple[Graph, np.ndarray]:
    """Queries, keys and values of a token are rows of a table."""
    b = GraphBuilder("attention")
    token, _ = decode_inputs(b)
    width = (HEADS + 2 * KV_HEADS) * HEAD
    table = np.random.default_rng(3).standard_normal((TOKENS, width)).astype(np.float32)
    row = b.op("embedding", b.constant("table", Constant(TensorType("f32", table.shape), table)), token)
    parts = []
    start = 0
    for heads in (HEADS, KV_HEADS, KV_HEADS):
        part = b.op("slice", row, axis=1, start=start, stop=start + heads * HEAD)
        parts.append(b.op("reshape", part, shape=(BATCH, heads, 1, HEAD)))
        start += heads * HEAD
    attrs = {"layer": 3, "scale": 0.3, "heads": HEADS, "kv_heads": KV_HEADS}
    if window is not None:
        attrs["window"] = window
    return b.finish({"out": b.op("attention", *parts, **attrs)}), table


def expected(table: np.ndarray, tokens: list[int], window: int | None) -> np.ndarray:
    """The same by torch over the whole sequence at once."""
    rows = torch.from_numpy(table[tokens])
    q, k, v = rows.split([HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD], dim=1)
    q, k, v = (x.unflatten(1, (-1, HEAD)).transpose(0, 1) for x in (q, k, v))
    index = torch.arange(len(tokens))
    mask = index[:, None] >= index[None, :]
    if window is not None:
        mask &= index[:, None] - index[None, :] < window
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True)
    return out.transpose(0, 1).flatten(1).numpy()


@pytest.mark.parametrize("window", [None, 1, 5, 64])
def test_attention_over_a_growing_cache(window: int | None) -> None:
    graph, table = attention_graph(window)
    tokens = np.random.default_rng(0).integers(0, TOKENS, 37).tolist()
    interpreter = Interpreter(graph)
    steps = [interpreter.step([token], [position])["out"] for position, token in enumerate(tokens)]
    assert steps[0].shape == (1, 1, HEADS * HEAD)
    np.testing.assert_allclose(np.concatenate(steps)[:, 0], expected(table, tokens, window), atol=1e-5)


def test_lanes_are_independent_and_may_be_at_different_positions() -> None:
    graph, table = attention_graph()
    first, second = [5, 6, 7, 8], [9, 1, 2, 3]
    interpreter = Interpreter(graph)
    outs = []
    # The second lane starts again at position 0 half-way through the first one.
    for step in range(4):
        lane_position = step % 2
        out = interpreter.step([first[step], second[step]], [step, lane_position])["out"]
        outs.append(out)
    np.testing.assert_allclose(outs[3][0, 0], expected(table, first, None)[3], atol=1e-5)
    np.testing.assert_allclose(outs[3][1, 0], expected(table, second[2:], None)[1], atol=1e-5)


def test_reset_forgets() -> None:
    graph, _ = attention_graph()
    interpreter = Interpreter(graph)
    alone = interpreter.step([4], [0])["out"]
    interpreter.step([5], [1])
    interpreter.reset()
    np.testing.assert_array_equal(interpreter.step([4], [0])["out"], alone)


def test_bf16_results_are_rounded() -> None:
    b = GraphBuilder("g")
    x = b.input("x", TensorType("f32", (BATCH,)))
    narrow = b.op("cast", x, dtype="bf16")
    graph = b.finish({"narrow": narrow, "sum": b.op("add", narrow, b.scalar(2**-9, "bf16"))})
    result = Interpreter(graph).run({"x": np.array([1 + 2**-9, 1.0 + 2**-7], np.float32)})
    np.testing.assert_array_equal(result["narrow"], np.array([1.0, 1.0 + 2**-7], np.float32))
    np.testing.assert_array_equal(result["sum"], np.array([1.0, 1.0 + 2**-7], np.float32))


def test_unbound_weights_cannot_run() -> None:
    b = GraphBuilder("big")
    token, _ = decode_inputs(b)
    graph = b.finish({"x": b.op("embedding", b.constant("w", Constant(TensorType("f32", (5, 4)), None)), token)})
    with pytest.raises(WordlineError, match="'big' cannot be executed: 1 of its constants have no data") as caught:
        Interpreter(graph)
    assert caught.value.code == "unbound-weights"


def test_inputs_must_agree_on_the_batch() -> None:
    graph, _ = attention_graph()
    with pytest.raises(WordlineError, match=r"input 'position' has shape \[3\], the graph takes \[batch\]") as caught:
        Interpreter(graph).step([1, 2], [0, 0, 0])
    assert caught.value.code == "invalid-input"
