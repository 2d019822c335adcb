from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from xdsl.context import Context
from xdsl.dialects.builtin import DYNAMIC_INDEX, Builtin, UnregisteredOp
from xdsl.dialects.builtin import TensorType as XdslTensor
from xdsl.parser import Parser

from tests.support.graphs import BATCH, decode_inputs, graphs
from wordline.errors import WordlineError
from wordline.graph.builder import GraphBuilder
from wordline.graph.canonicalise import CANONICAL_RULES
from wordline.graph.ir import Constant, Graph
from wordline.graph.text import describe, parse_graph, print_graph
from wordline.graph.types import TensorType
from wordline.graph.verifier import verify


def small_graph() -> Graph:
    b = GraphBuilder("small")
    token, position = decode_inputs(b)
    with b.at('model.embed, file "x".py:3'):
        table = b.constant("embed.weight", Constant(TensorType("f32", (5, 4)), np.zeros((5, 4), np.float32)))
        x = b.op("embedding", table, token)
    angle = b.op("cast", b.op("reshape", position, shape=(BATCH, 1)), dtype="f32")
    data = np.array([1.0, -0.0, 1e-7, np.inf], np.float32)
    freq = b.constant("freq", Constant(TensorType("f32", (4,)), data, inline=True))
    x = b.op("add", x, b.op("mul", angle, freq))
    x = b.op("mul", x, b.scalar(0.1, "f32"))
    return b.finish({"logits": x, "next_token": b.op("reshape", b.op("reduce_argmax", x), shape=(BATCH,))})


EXPECTED = """\
"builtin.module"() ({
  "wordline.graph"() ({
  ^bb0(%token : tensor<?xi32, "batch">, %position : tensor<?xi32, "batch">):
    %2 = "wordline.constant"() {name = "embed.weight"} : () -> tensor<5x4xf32> loc("model.embed, file \\"x\\".py:3")
    %3 = "wordline.embedding"(%2, %token) : (tensor<5x4xf32>, tensor<?xi32, "batch">) -> tensor<?x4xf32, "batch"> \
loc("model.embed, file \\"x\\".py:3")
    %4 = "wordline.reshape"(%position) {shape = ["batch", 1]} : (tensor<?xi32, "batch">) -> tensor<?x1xi32, "batch">
    %5 = "wordline.cast"(%4) {dtype = "f32"} : (tensor<?x1xi32, "batch">) -> tensor<?x1xf32, "batch">
    %6 = "wordline.constant"() {name = "freq", data = dense<[1.0, -0.0, 1.0e-07, 0x7F800000]> : tensor<4xf32>} \
: () -> tensor<4xf32>
    %7 = "wordline.mul"(%5, %6) : (tensor<?x1xf32, "batch">, tensor<4xf32>) -> tensor<?x4xf32, "batch">
    %8 = "wordline.add"(%3, %7) : (tensor<?x4xf32, "batch">, tensor<?x4xf32, "batch">) -> tensor<?x4xf32, "batch">
    %9 = "wordline.constant"() {value = 0.10000000149011612 : f64} : () -> tensor<f32>
    %10 = "wordline.mul"(%8, %9) : (tensor<?x4xf32, "batch">, tensor<f32>) -> tensor<?x4xf32, "batch">
    %11 = "wordline.reduce_argmax"(%10) : (tensor<?x4xf32, "batch">) -> tensor<?x1xi32, "batch">
    %12 = "wordline.reshape"(%11) {shape = ["batch"]} : (tensor<?x1xi32, "batch">) -> tensor<?xi32, "batch">
    "wordline.output"(%10, %12) {names = ["logits", "next_token"]} \
: (tensor<?x4xf32, "batch">, tensor<?xi32, "batch">) -> ()
  }) {sym_name = "small"} : () -> ()
}) : () -> ()
"""


def xdsl_module(text: str) -> list[UnregisteredOp]:
    context = Context(allow_unregistered=True)
    context.load_dialect(Builtin)
    module = Parser(context, text).parse_module()
    module.verify()
    return [op for op in module.walk() if isinstance(op, UnregisteredOp)]


def test_text_of_a_small_graph() -> None:
    assert print_graph(small_graph()) == EXPECTED


def test_parsing_gives_the_graph_back() -> None:
    graph = parse_graph(EXPECTED)
    verify(graph)
    assert print_graph(graph) == EXPECTED
    assert graph.name == "small"
    assert [value.name for value in graph.inputs] == ["token", "position"]
    assert graph.constants["embed.weight"].data is None
    np.testing.assert_array_equal(graph.constants["freq"].data, np.array([1.0, -0.0, 1e-7, np.inf], np.float32))


def test_an_independent_parser_reads_the_text() -> None:
    operations = xdsl_module(EXPECTED)
    names = [op.op_name.data for op in operations]
    assert names[0] == "wordline.graph"
    assert names[-1] == "wordline.output"
    result = operations[2].results[0].type
    assert isinstance(result, XdslTensor)
    assert result.get_shape() == (DYNAMIC_INDEX, 4)


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_every_graph_round_trips(graph: Graph) -> None:
    text = print_graph(graph)
    parsed = parse_graph(text)
    verify(parsed)
    assert print_graph(parsed) == text
    assert len(xdsl_module(text)) == len(graph.ops) + 2
    assert "loc(" not in print_graph(graph, locations=False)


@settings(max_examples=20, deadline=None)
@given(graphs(rules=CANONICAL_RULES))
def test_folded_constants_round_trip_with_their_data(graph: Graph) -> None:
    parsed = parse_graph(print_graph(graph))
    for name, constant in graph.constants.items():
        if constant.inline:
            np.testing.assert_array_equal(parsed.constants[name].data, constant.data)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"wordline.graph"', '"wordline.grap"', "line 2.*"),
        ("%3, %7", "%3, %70", "%70 is used before it is defined"),
        ("%4 =", "%3 =", "%3 is defined twice"),
        ("tensor<5x4xf32>", "tensor<5x4xf16>", "'tensor<5x4xf16>' is no tensor type"),
        ('"wordline.cast"(%4)', '"wordline.cast" %4', r"expected '\(', found '%4'"),
        ("dtype = ", "dtype ~ ", "unexpected text '~'"),
        ('{sym_name = "small"} : () -> ()\n}) : () -> ()\n', "", "found the end|found 'the end'"),
    ],
)
def test_syntax_errors_name_the_line(old: str, new: str, what: str) -> None:
    with pytest.raises(WordlineError, match=what) as caught:
        parse_graph(EXPECTED.replace(old, new, 1))
    assert caught.value.code == "graph-syntax"
    assert caught.value.where is not None
    assert caught.value.where.startswith("line ")


def test_any_location_text_survives() -> None:
    b = GraphBuilder("names")
    x = b.input("x", TensorType("f32", (BATCH,)))
    with b.at('Modèle "1" \\ Zeile\n2\t\x7f'):
        graph = b.finish({"y": b.op("neg", x)})
    assert parse_graph(print_graph(graph)).ops[0].loc == graph.ops[0].loc


def test_short_form() -> None:
    lines = [describe(op) for op in small_graph().ops]
    assert lines[1] == "%3 = embedding(%2, %token) : f32[batch, 4]"
    assert lines[2] == "%4 = reshape(%position; shape=batchx1) : i32[batch, 1]"
    assert lines[0] == "%2 = constant(name=embed.weight) : f32[5, 4]"
