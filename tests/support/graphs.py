"""Small random graphs for property tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from wordline.graph.builder import GraphBuilder, Rule
from wordline.graph.ir import Constant, Graph, Value
from wordline.graph.types import SymDim, TensorType

BATCH = SymDim("batch")
WIDTH = 6

_UNARY = ("neg", "exp", "sigmoid", "tanh", "sin", "cos", "rotate_half")
_BINARY = ("add", "sub", "mul", "maximum")


def decode_inputs(b: GraphBuilder) -> tuple[Value, Value]:
    return b.input("token", TensorType("i32", (BATCH,))), b.input("position", TensorType("i32", (BATCH,)))


@st.composite
def graphs(draw: st.DrawFn, rules: tuple[Rule, ...] = ()) -> Graph:
    """A graph over [batch, 1, 6] values: element-wise work, reductions, views and tables, redundant on purpose."""
    b = GraphBuilder("random", rules)
    token, position = decode_inputs(b)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    table = Constant(TensorType("f32", (9, WIDTH)), rng.standard_normal((9, WIDTH)).astype(np.float32))
    lanes = b.op("reshape", token, shape=(BATCH, 1))
    angle = b.op("cast", b.op("reshape", position, shape=(BATCH, 1, 1)), dtype="f32")
    frequencies = rng.standard_normal(WIDTH // 2).astype(np.float32)
    step = b.constant("frequencies", Constant(TensorType("f32", (WIDTH // 2,)), frequencies, inline=True))
    half = b.op("mul", angle, step)
    values = [b.op("embedding", b.constant("table", table), lanes), b.op("concat", half, half, axis=2)]
    for _ in range(draw(st.integers(1, 14))):
        x = draw(st.sampled_from(values))
        y = draw(st.sampled_from(values))
        choice = draw(st.sampled_from(("unary", "binary", "scalar", "reduce", "view", "linear", "halves", "expand")))
        with b.at(draw(st.sampled_from(("", "layers.0, file.py:3", 'odd "name" \\')))):
            if choice == "unary":
                values.append(b.op(draw(st.sampled_from(_UNARY)), x))
            elif choice == "binary":
                values.append(b.op(draw(st.sampled_from(_BINARY)), x, y))
            elif choice == "scalar":
                number = draw(st.sampled_from((1.0, 0.0, -0.0, 0.1, -3.5, 1e-6, float("inf"))))
                values.append(b.op(draw(st.sampled_from(_BINARY)), b.scalar(number, "f32"), x))
            elif choice == "reduce":
                reduced = b.op(draw(st.sampled_from(("reduce_sum", "reduce_max"))), x)
                values.append(b.op("sub", x, reduced))
            elif choice == "view":
                split = b.op("reshape", x, shape=(BATCH, 1, 2, WIDTH // 2))
                moved = b.op("transpose", split, perm=draw(st.sampled_from(((0, 2, 1, 3), (0, 1, 3, 2), (0, 3, 1, 2)))))
                values.append(b.op("reshape", moved, shape=(BATCH, 1, WIDTH)))
            elif choice == "linear":
                data = rng.standard_normal((WIDTH, WIDTH)).astype(np.float32)
                name = f"weight.{len(b.constants)}"
                weight = b.constant(name, Constant(TensorType("f32", (WIDTH, WIDTH)), data))
                values.append(b.op("linear", x, b.op("transpose", weight, perm=(1, 0))))
            elif choice == "halves":
                low = b.op("slice", x, axis=2, start=0, stop=WIDTH // 2)
                high = b.op("slice", x, axis=2, start=WIDTH // 2, stop=WIDTH)
                values.append(b.op("concat", b.op("neg", high), low, axis=2))
            else:
                row = b.op("slice", x, axis=2, start=1, stop=2)
                values.append(b.op("mul", y, b.op("broadcast", row, shape=(BATCH, 1, WIDTH))))
    logits = b.op("reshape", values[-1], shape=(BATCH, WIDTH))
    winner = b.op("reshape", b.op("reduce_argmax", logits), shape=(BATCH,))
    return b.finish({"logits": logits, "next_token": winner})
