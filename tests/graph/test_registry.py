from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from wordline.graph.document import operation_table, with_table
from wordline.graph.opdef import ShapeError
from wordline.graph.registry import REGISTRY, broadcast_shapes, infer, lookup
from wordline.graph.types import SymDim, TensorType

B = SymDim("batch")
RNG = np.random.default_rng(7)


def f32(*shape: int | SymDim) -> TensorType:
    return TensorType("f32", shape)


def i32(*shape: int | SymDim) -> TensorType:
    return TensorType("i32", shape)


ATTENTION = {"layer": 0, "scale": 0.5, "heads": 4, "kv_heads": 2}

ACCEPTED: list[tuple[str, list[TensorType], dict[str, Any], TensorType]] = [
    ("embedding", [f32(9, 4), i32(B, 1)], {}, f32(B, 1, 4)),
    ("linear", [f32(B, 1, 4), f32(7, 4)], {}, f32(B, 1, 7)),
    ("attention", [f32(B, 4, 1, 8), f32(B, 2, 1, 8), f32(B, 2, 1, 6)], ATTENTION, f32(B, 1, 24)),
    ("add", [f32(B, 1, 4), f32(4)], {}, f32(B, 1, 4)),
    ("mul", [f32(B, 1, 1), f32()], {}, f32(B, 1, 1)),
    ("sub", [i32(B), i32()], {}, i32(B)),
    ("exp", [f32(B, 3)], {}, f32(B, 3)),
    ("less", [f32(B, 3), f32(1)], {}, TensorType("bool", (B, 3))),
    ("select", [TensorType("bool", (B, 1)), f32(3), f32()], {}, f32(B, 3)),
    ("cast", [i32(B)], {"dtype": "f32"}, f32(B)),
    ("reduce_sum", [f32(B, 3)], {}, f32(B, 1)),
    ("reduce_argmax", [f32(B, 3)], {}, i32(B, 1)),
    ("reshape", [f32(B, 6)], {"shape": (2, B, 3)}, f32(2, B, 3)),
    ("transpose", [f32(B, 2, 3)], {"perm": (2, 0, 1)}, f32(3, B, 2)),
    ("slice", [f32(B, 6)], {"axis": 1, "start": 2, "stop": 5}, f32(B, 3)),
    ("broadcast", [f32(1, 3)], {"shape": (B, 2, 3)}, f32(B, 2, 3)),
    ("concat", [f32(B, 2), f32(B, 3)], {"axis": 1}, f32(B, 5)),
    ("rotate_half", [f32(B, 6)], {}, f32(B, 6)),
]

REFUSED: list[tuple[str, list[TensorType], dict[str, Any], str]] = [
    ("gemm", [], {}, "there is no graph operation 'gemm'"),
    ("linear", [f32(B, 4)], {}, "linear takes x, w; got 1 operands"),
    ("linear", [f32(B, 4), f32(7, 5)], {}, "x has 4 columns, w has 5"),
    ("linear", [f32(B, 4), f32(4)], {}, r"needs x \[..., K\] and w \[M, K\]"),
    ("embedding", [f32(9, 4), f32(B)], {}, "integer tokens"),
    ("embedding", [f32(9), i32(B)], {}, "float table"),
    ("attention", [f32(B, 4, 1, 8), f32(B, 2, 1, 4), f32(B, 2, 1, 4)], ATTENTION, "q has head size 8, k has 4"),
    ("attention", [f32(B, 4, 2, 8), f32(B, 2, 1, 8), f32(B, 2, 1, 8)], ATTENTION, r"q as \[batch, 4, 1, head\]"),
    (
        "attention",
        [f32(B, 4, 1, 8), f32(B, 3, 1, 8), f32(B, 3, 1, 8)],
        {**ATTENTION, "kv_heads": 3},
        "4 query heads do not divide among 3",
    ),
    (
        "attention",
        [f32(B, 4, 1, 8), f32(B, 2, 1, 8), f32(B, 2, 1, 8)],
        {**ATTENTION, "window": 0},
        "window must be at least 1",
    ),
    ("add", [f32(B, 3), f32(4)], {}, "do not broadcast"),
    ("add", [f32(B), i32(B)], {}, "one number type"),
    ("exp", [i32(B)], {}, "float operand"),
    ("select", [f32(B), f32(B), f32(B)], {}, "bool condition"),
    ("cast", [f32(B)], {"dtype": "f16"}, "unknown element type 'f16'"),
    ("cast", [f32(B)], {}, "needs the attribute 'dtype'"),
    ("cast", [f32(B)], {"dtype": 3}, "must be str, got 3"),
    ("exp", [f32(B)], {"base": 2}, "has no attribute 'base'"),
    ("reduce_sum", [f32()], {}, "rank 1 or more"),
    ("reshape", [f32(B, 6)], {"shape": (B, 5)}, "changes the number of elements"),
    ("reshape", [f32(B, 6)], {"shape": (6,)}, "changes the number of elements"),
    ("transpose", [f32(B, 2)], {"perm": (0, 0)}, "no permutation"),
    ("slice", [f32(B, 6)], {"axis": 1, "start": 4, "stop": 7}, "outside axis 1"),
    ("slice", [f32(B, 6)], {"axis": 1, "start": 4, "stop": 4}, "empty"),
    ("slice", [f32(B, 6)], {"axis": 2, "start": 0, "stop": 1}, "axis 2 is out of range for rank 2"),
    ("slice", [f32(B, 6)], {"axis": 0, "start": 0, "stop": 1}, "must be a number, got the symbol 'batch'"),
    ("broadcast", [f32(2, 3)], {"shape": (3,)}, "does not broadcast"),
    ("concat", [f32(B, 2), f32(1, 2)], {"axis": 1}, "different types"),
    ("rotate_half", [f32(B, 5)], {}, "even last axis"),
    ("constant", [], {"value": 1.0}, "declared, not inferred"),
]


@pytest.mark.parametrize(("kind", "types", "attrs", "result"), ACCEPTED, ids=lambda item: str(item)[:24])
def test_shape_rule_accepts(kind: str, types: list[TensorType], attrs: dict[str, Any], result: TensorType) -> None:
    assert infer(kind, types, attrs) == result


@pytest.mark.parametrize(("kind", "types", "attrs", "text"), REFUSED, ids=lambda item: str(item)[:24])
def test_shape_rule_refuses(kind: str, types: list[TensorType], attrs: dict[str, Any], text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        infer(kind, types, attrs)


class NoState:
    """A step for references that read nothing but their operands."""

    position = np.zeros(0, np.int32)

    def dims(self, shape: tuple[int | SymDim, ...]) -> tuple[int, ...]:
        return tuple(dim if isinstance(dim, int) else 2 for dim in shape)


def reference(kind: str, *operands: NDArray[Any], **attrs: Any) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        return lookup(kind).reference(operands, attrs, NoState())  # type: ignore[arg-type]


TORCH = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "maximum": torch.maximum,
    "neg": torch.neg,
    "exp": torch.exp,
    "recip": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "sin": torch.sin,
    "cos": torch.cos,
    "less": torch.lt,
    "select": torch.where,
    "reduce_sum": lambda x: x.sum(-1, keepdim=True),
    "reduce_max": lambda x: x.amax(-1, keepdim=True),
    "reduce_argmax": lambda x: x.argmax(-1, keepdim=True),
    "linear": torch.nn.functional.linear,
    "embedding": lambda table, token: torch.nn.functional.embedding(token, table),
    "rotate_half": lambda x: torch.cat((-x[..., 2:], x[..., :2]), dim=-1),
}


@pytest.mark.parametrize("kind", TORCH)
def test_reference_agrees_with_torch(kind: str) -> None:
    x = RNG.standard_normal((3, 1, 4)).astype(np.float32)
    operands: dict[str, list[NDArray[Any]]] = {
        "linear": [x, RNG.standard_normal((5, 4)).astype(np.float32)],
        "embedding": [RNG.standard_normal((5, 4)).astype(np.float32), np.array([[4], [0]], np.int32)],
        "select": [x > 0, x, -x],
        "rsqrt": [np.abs(x)],
    }
    arrays = operands.get(kind) or [x, RNG.standard_normal((3, 2, 1)).astype(np.float32)][: len(lookup(kind).operands)]
    result = reference(kind, *arrays)
    expected = TORCH[kind](*(torch.from_numpy(array) for array in arrays)).numpy()
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=2e-7)
    assert result.shape == expected.shape


def test_references_keep_special_values() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 200.0, -200.0, 0.0], np.float32)
    np.testing.assert_array_equal(reference("sigmoid", special), np.array([np.nan, 1, 0, 1, 0, 0.5], np.float32))
    assert np.isnan(reference("maximum", special, np.float32(3))[0])
    assert reference("reduce_argmax", np.array([[1, 7, 7], [3, np.nan, 9]], np.float32)).tolist() == [[1], [1]]
    assert np.isnan(reference("reduce_max", special)[0])


def test_views_move_elements_without_changing_them() -> None:
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(reference("reshape", x, shape=(SymDim("batch"), 2, 3)), x.reshape(2, 2, 3))
    np.testing.assert_array_equal(reference("transpose", x, perm=(1, 0)), x.T)
    np.testing.assert_array_equal(reference("slice", x, axis=1, start=1, stop=3), x[:, 1:3])
    np.testing.assert_array_equal(reference("concat", x, x, axis=0), np.concatenate([x, x]))
    np.testing.assert_array_equal(reference("broadcast", x[:1], shape=(3, 6)), np.repeat(x[:1], 3, 0))
    assert reference("cast", np.array([2.9, -2.9], np.float32), dtype="i32").tolist() == [2, -2]


def test_broadcasting_follows_numpy_and_keeps_symbols() -> None:
    assert broadcast_shapes((B, 1, 4), (3, 1)) == (B, 3, 4)
    with pytest.raises(ShapeError):
        broadcast_shapes((B,), (2,))


def test_every_operation_is_documented(pytestconfig: pytest.Config) -> None:
    page = (pytestconfig.rootpath / "docs" / "graph.md").read_text()
    assert with_table(page) == page, "run: python -m wordline.graph.document docs/graph.md"
    assert all(definition.meaning.endswith(".") for definition in REGISTRY.values())
    assert operation_table().count("\n") == len(REGISTRY) + 1
    with pytest.raises(ValueError, match="no place"):
        with_table("no markers")


def test_signature_shows_operands_and_attributes() -> None:
    assert lookup("attention").signature == "attention(q, k, v; layer, scale, heads, kv_heads, window?)"
    assert lookup("concat").signature == "concat(x...; axis)"


def test_types_know_their_size() -> None:
    type = f32(B, 4, 2)
    assert str(type) == "f32[batch, 4, 2]"
    assert type.symbols == ("batch",)
    assert type.static_elements() == 8
    assert type.bytes({"batch": 3}) == 96
    assert type.with_dtype("bf16").bytes({"batch": 3}) == 48
