from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from tests.support.graphs import BATCH, decode_inputs, graphs
from wordline.errors import WordlineError
from wordline.graph.builder import GraphBuilder
from wordline.graph.canonicalise import CANONICAL_RULES, canonicalise
from wordline.graph.interpreter import Interpreter
from wordline.graph.ir import Constant, Graph, Value
from wordline.graph.text import describe, print_graph
from wordline.graph.types import TensorType
from wordline.graph.verifier import verify


def simplified(build: Callable[[GraphBuilder, Value], Value]) -> list[str]:
    """Kinds left of an expression over x [batch, 2, 1, 4], in program order."""
    b = GraphBuilder("g")
    x = b.input("x", TensorType("f32", (BATCH, 2, 1, 4)))
    graph = canonicalise(b.finish({"y": build(b, x)}))
    verify(graph)
    return [describe(op).partition(" = ")[2] for op in graph.ops]


def table(b: GraphBuilder, data: np.ndarray | None, *, inline: bool = False, name: str = "t") -> Value:
    shape = (4,) if data is None else data.shape
    return b.constant(name, Constant(TensorType("f32", shape), data, inline))


def test_identities_disappear() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        x = b.op("cast", x, dtype="f32")
        x = b.op("reshape", x, shape=(BATCH, 2, 1, 4))
        x = b.op("transpose", x, perm=(0, 1, 2, 3))
        x = b.op("broadcast", x, shape=(BATCH, 2, 1, 4))
        x = b.op("slice", x, axis=3, start=0, stop=4)
        x = b.op("concat", x, axis=3)
        x = b.op("mul", b.scalar(1.0, "f32"), x)
        return b.op("neg", x)

    assert simplified(build) == ["neg(%x) : f32[batch, 2, 1, 4]"]


def test_adding_zero_stays_because_of_the_sign_of_zero() -> None:
    assert len(simplified(lambda b, x: b.op("add", x, b.scalar(0.0, "f32")))) == 2


def test_views_merge() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        x = b.op("transpose", x, perm=(0, 2, 1, 3))  # moves an axis of size 1 only
        return b.op("reshape", b.op("reshape", x, shape=(BATCH, 8)), shape=(BATCH, 4, 2))

    assert simplified(build) == ["reshape(%x; shape=batchx4x2) : f32[batch, 4, 2]"]

    def transposes(b: GraphBuilder, x: Value) -> Value:
        return b.op("transpose", b.op("transpose", x, perm=(3, 0, 1, 2)), perm=(0, 2, 1, 3))

    assert simplified(transposes) == ["transpose(%x; perm=3x1x0x2) : f32[4, 2, batch, 1]"]


def test_a_rotation_is_recognised() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        low, high = (b.op("slice", x, axis=3, start=start, stop=start + 2) for start in (0, 2))
        return b.op("concat", b.op("neg", high), low, axis=3)

    assert simplified(build) == ["rotate_half(%x) : f32[batch, 2, 1, 4]"]

    def other_way(b: GraphBuilder, x: Value) -> Value:
        low, high = (b.op("slice", x, axis=3, start=start, stop=start + 2) for start in (0, 2))
        return b.op("concat", b.op("neg", low), high, axis=3)

    assert not any(line.startswith("rotate_half") for line in simplified(other_way))


def test_rotary_angles_are_one_product() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        scale = b.op("slice", x, axis=3, start=0, stop=1)
        half = b.op("mul", scale, table(b, np.array([1.0, 0.5], np.float32), inline=True))
        return b.op("cos", b.op("concat", half, half, axis=3))

    assert simplified(build) == [
        "slice(%x; axis=3, start=0, stop=1) : f32[batch, 2, 1, 1]",
        "constant(name=concat(t, t, axis=0)) : f32[4]",
        "mul(%1, %2) : f32[batch, 2, 1, 4]",
        "cos(%3) : f32[batch, 2, 1, 4]",
    ]


def test_a_join_of_computed_halves_stays() -> None:
    lines = simplified(lambda b, x: b.op("concat", b.op("exp", x), b.op("exp", x), axis=3))
    assert [line.partition("(")[0] for line in lines] == ["exp", "concat"]


def test_broadcast_operands_are_read_directly() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        row = b.op("slice", x, axis=3, start=0, stop=1)
        return b.op("add", b.op("broadcast", row, shape=(BATCH, 2, 1, 4)), x)

    assert [line.partition("(")[0] for line in simplified(build)] == ["slice", "add"]


def test_a_broadcast_that_gives_the_shape_stays() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        row = b.op("slice", x, axis=3, start=0, stop=1)
        wide = b.op("broadcast", row, shape=(BATCH, 2, 1, 4))
        return b.op("add", wide, wide)

    assert [line.partition("(")[0] for line in simplified(build)] == ["slice", "broadcast", "add"]


def test_constants_fold_and_move_to_the_right() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        two = b.op("add", b.scalar(1.0, "f32"), b.scalar(1.0, "f32"))
        scaled = b.op("mul", table(b, np.arange(4, dtype=np.float32)), two)
        return b.op("mul", b.op("add", scaled, two), x)

    assert simplified(build) == [
        "constant(name=add(mul(t, 2.0), 2.0)) : f32[4]",
        "mul(%x, %1) : f32[batch, 2, 1, 4]",
    ]


def test_unbound_weights_fold_to_the_same_graph() -> None:
    def build(data: np.ndarray | None) -> Graph:
        b = GraphBuilder("g", CANONICAL_RULES)
        x = b.input("x", TensorType("f32", (BATCH, 4)))
        gain = b.op("add", table(b, data), b.scalar(1.0, "f32"))
        return b.finish({"y": b.op("mul", gain, x)})

    bound, unbound = build(np.arange(4, dtype=np.float32)), build(None)
    assert print_graph(bound) == print_graph(unbound)
    (name,) = bound.constants
    assert unbound.constants[name].data is None
    np.testing.assert_array_equal(bound.constants[name].data, np.arange(1, 5, dtype=np.float32))
    assert not bound.constants[name].inline


def test_folding_never_costs_memory() -> None:
    def build(b: GraphBuilder, x: Value) -> Value:
        wide = b.op("broadcast", table(b, np.zeros(4, np.float32)), shape=(1 << 15, 4))
        return b.op("reduce_sum", wide)

    assert simplified(build)[1].startswith("broadcast")


def test_folding_rounds_to_bf16() -> None:
    b = GraphBuilder("g", CANONICAL_RULES)
    folded = b.op("cast", table(b, np.array([1.0 + 2**-9, 3.0], np.float32)), dtype="bf16")
    graph = b.finish({"y": folded})
    (constant,) = graph.constants.values()
    np.testing.assert_array_equal(constant.data, np.array([1.0, 3.0], np.float32))


def test_equal_operations_are_shared_but_never_attention() -> None:
    b = GraphBuilder("g")
    _, _ = decode_inputs(b)
    x = b.input("x", TensorType("f32", (BATCH, 1, 1, 4)))
    assert b.op("exp", x) is b.op("exp", x)
    assert b.scalar(0.0, "f32") is not b.scalar(-0.0, "f32")
    assert b.scalar(1.0, "f32") is not b.scalar(1, "i32")
    attrs = {"layer": 0, "scale": 1.0, "heads": 1, "kv_heads": 1}
    assert b.op("attention", x, x, x, **attrs) is not b.op("attention", x, x, x, **attrs)


def test_dead_operations_and_constants_are_dropped() -> None:
    b = GraphBuilder("g")
    x = b.input("x", TensorType("f32", (BATCH, 4)))
    b.op("mul", x, table(b, np.zeros(4, np.float32)))
    graph = b.finish({"y": b.op("neg", x)})
    assert [op.kind for op in graph.ops] == ["neg"]
    assert graph.constants == {}


def test_building_nonsense_is_an_error_at_its_source() -> None:
    b = GraphBuilder("g")
    x = b.input("x", TensorType("f32", (BATCH, 4)))
    with b.at("mlp, model.py:7"), pytest.raises(WordlineError, match="even last axis") as caught:
        b.op("rotate_half", b.op("slice", x, axis=1, start=0, stop=3))
    assert caught.value.where == "mlp, model.py:7"


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_canonical_graphs_compute_the_same_bits(graph: Graph) -> None:
    canonical = canonicalise(graph)
    verify(canonical)
    assert print_graph(canonicalise(canonical)) == print_graph(canonical)
    plain, simple = Interpreter(graph), Interpreter(canonical)
    for position in range(2):
        token = np.array([3, 8, 0], np.int32)
        lanes = np.full(3, position, np.int32)
        expected = plain.step(token, lanes)
        result = simple.step(token, lanes)
        np.testing.assert_array_equal(result["logits"], expected["logits"])
        np.testing.assert_array_equal(result["next_token"], expected["next_token"])


@settings(max_examples=30, deadline=None)
@given(graphs())
def test_unbinding_weights_keeps_the_form(graph: Graph) -> None:
    unbound = replace(
        graph,
        constants={
            name: constant if constant.inline else replace(constant, data=None)
            for name, constant in graph.constants.items()
        },
    )
    assert print_graph(canonicalise(unbound)) == print_graph(canonicalise(graph))
    assert Counter(op.kind for op in canonicalise(graph).ops)["cast"] <= 1
