from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.support.graphs import BATCH, decode_inputs
from wordline.errors import WordlineError
from wordline.graph.builder import GraphBuilder
from wordline.graph.ir import Constant, Graph, Op, Value
from wordline.graph.types import TensorType
from wordline.graph.verifier import verify


def graph() -> Graph:
    b = GraphBuilder("g")
    token, _ = decode_inputs(b)
    weight = Constant(TensorType("f32", (5, 8)), np.zeros((5, 8), np.float32))
    with b.at("embed, file.py:1"):
        x = b.op("embedding", b.constant("w", weight), token)
    x = b.op("mul", x, b.scalar(2.0, "f32"))
    q = b.op("reshape", x, shape=(BATCH, 2, 1, 4))
    first = b.op("attention", q, q, q, layer=0, scale=1.0, heads=2, kv_heads=2)
    return b.finish({"logits": b.op("reshape", first, shape=(BATCH, 8))})


def with_op(g: Graph, index: int, **changes: object) -> Graph:
    op = g.ops[index]
    fields = {"kind": op.kind, "operands": op.operands, "attrs": op.attrs, "results": op.results, "loc": op.loc}
    changed = Op(**{**fields, **changes})  # type: ignore[arg-type]
    return replace(g, ops=(*g.ops[:index], changed, *g.ops[index + 1 :]))


def index_of(g: Graph, kind: str) -> int:
    return next(index for index, op in enumerate(g.ops) if op.kind == kind)


def second_attention(g: Graph) -> Graph:
    op = g.ops[index_of(g, "attention")]
    again = Op(op.kind, op.operands, op.attrs, (Value(99, op.result.type),))
    return replace(g, ops=(*g.ops, again))


def retyped(g: Graph) -> Graph:
    index = index_of(g, "mul")
    old = g.ops[index].result
    return with_op(g, index, results=(Value(old.id, TensorType("f32", (BATCH, 9))),))


CASES: list[tuple[Callable[[Graph], Graph], str]] = [
    (lambda g: replace(g, ops=g.ops[::-1]), "used before it is defined"),
    (lambda g: replace(g, ops=(*g.ops, g.ops[0])), "defined twice"),
    (lambda g: with_op(g, index_of(g, "mul"), kind="gemm"), "no graph operation 'gemm'"),
    (lambda g: with_op(g, index_of(g, "mul"), results=()), "0 results instead of one"),
    (retyped, r"mul gives f32\[batch, 8\], the graph says f32\[batch, 9\]"),
    (second_attention, "two attentions own the cache of layer 0"),
    (lambda g: replace(g, constants={}), "there is no constant 'w'"),
    (lambda g: replace(g, constants={"w": Constant(TensorType("f32", (5,)), None)}), "constant 'w' has type"),
    (
        lambda g: replace(g, constants={"w": Constant(TensorType("f32", (5, 8)), np.zeros(3, np.float32))}),
        r"holds data of shape \[3\]",
    ),
    (lambda g: with_op(g, 0, attrs={}), "either a name or a value"),
    (lambda g: with_op(g, 0, attrs={"value": 1.0}), "is no f32"),
    (lambda g: replace(g, outputs={"logits": Value(77, TensorType("f32"))}), "output 'logits' is never defined"),
    (lambda g: replace(g, inputs=(g.inputs[0], Value(1, g.inputs[1].type, "token"))), "two inputs have one name"),
    (lambda g: replace(g, inputs=(g.inputs[0], Value(1, g.inputs[1].type, "pos"))), "needs the graph input 'position'"),
]


def test_a_built_graph_is_well_formed() -> None:
    verify(graph())


@pytest.mark.parametrize(("damage", "what"), CASES, ids=[what for _, what in CASES])
def test_damage_is_found(damage: Callable[[Graph], Graph], what: str) -> None:
    with pytest.raises(WordlineError, match=what) as caught:
        verify(damage(graph()))
    assert caught.value.code == "invalid-graph"


def test_the_error_names_operation_and_source() -> None:
    g = graph()
    broken = with_op(g, index_of(g, "embedding"), operands=g.ops[index_of(g, "embedding")].operands[:1])
    with pytest.raises(WordlineError) as caught:
        verify(broken)
    assert caught.value.where == "embedding at embed, file.py:1"
