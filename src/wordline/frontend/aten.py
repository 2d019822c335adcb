"""One lowering rule for each ATen operation that a decode step may contain.

A rule takes the node and its resolved arguments (graph values for tensors) and returns the result. Composite operations
become the elementary ones of the graph: silu(x) = x * sigmoid(x), mean = sum * (1 / n), x ** 2 = x * x.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from wordline.frontend.attention import OP_NAME
from wordline.graph.builder import GraphBuilder
from wordline.graph.ir import Value
from wordline.graph.types import DType, TensorType

Number = int | float


class UnsupportedError(Exception):
    """An operation, or a variant of it, that has no lowering; the text says which variant."""


class Lowering(ABC):
    """What rules may use: the builder and the types of nodes."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.b = builder

    @abstractmethod
    def type_of(self, node: Node) -> TensorType:
        """Type of a node's (single) result."""

    def operand(self, value: Value | Number, dtype: DType) -> Value:
        """A tensor or Python number as a value of that element type."""
        if isinstance(value, Value):
            return self.b.op("cast", value, dtype=dtype)
        return self.b.scalar(value, dtype)


Rule = Callable[..., Value | tuple[Value, ...]]
ATEN: dict[str, Rule] = {}
"""Rules by overload name ("aten.mul.Tensor")."""

_DTYPES: dict[torch.dtype, DType] = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
}


def dtype_of(dtype: torch.dtype) -> DType:
    """The graph's element type for a torch one.

    Raises:
        UnsupportedError: the graph has no such type.
    """
    if dtype not in _DTYPES:
        raise UnsupportedError(f"element type {str(dtype).removeprefix('torch.')}")
    return _DTYPES[dtype]


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        ATEN.update(dict.fromkeys(names, rule))
        return rule

    return register


# --- views and copies -----------------------------------------------------------------------------------------------


@_rule(
    "aten.alias.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.dropout.default",
    "aten.lift_fresh_copy.default",
)
def _identity(ctx: Lowering, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    return x


@_rule("aten.to.dtype", "aten.to.device", "aten.to.dtype_layout", "aten._to_copy.default", "aten.type_as.default")
def _cast(ctx: Lowering, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    return ctx.b.op("cast", x, dtype=ctx.type_of(node).dtype)


@_rule(
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.unsqueeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.flatten.using_ints",
    "aten.unflatten.int",
)
def _reshape(ctx: Lowering, node: Node, x: Value, *_: Any) -> Value:
    return ctx.b.op("reshape", x, shape=ctx.type_of(node).shape)


@_rule("aten.expand.default")
def _expand(ctx: Lowering, node: Node, x: Value, *_: Any, **__: Any) -> Value:
    return ctx.b.op("broadcast", x, shape=ctx.type_of(node).shape)


@_rule("aten.transpose.int")
def _transpose(ctx: Lowering, node: Node, x: Value, first: int, second: int) -> Value:
    perm = list(range(x.type.rank))
    perm[first], perm[second] = perm[second], perm[first]
    return ctx.b.op("transpose", x, perm=tuple(perm))


@_rule("aten.permute.default")
def _permute(ctx: Lowering, node: Node, x: Value, perm: Sequence[int]) -> Value:
    return ctx.b.op("transpose", x, perm=tuple(axis % x.type.rank for axis in perm))


@_rule("aten.t.default", "aten.numpy_T.default")
def _reverse_axes(ctx: Lowering, node: Node, x: Value) -> Value:
    return ctx.b.op("transpose", x, perm=tuple(reversed(range(x.type.rank))))


@_rule("aten.slice.Tensor")
def _slice(
    ctx: Lowering, node: Node, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    if step != 1:
        raise UnsupportedError(f"step {step}")
    axis = dim % x.type.rank
    if ctx.type_of(node).shape == x.type.shape:
        return x
    return _window(ctx, x, axis, start or 0, end)


def _window(ctx: Lowering, x: Value, axis: int, start: int, end: int | None) -> Value:
    size = x.type.shape[axis]
    if not isinstance(size, int):
        raise UnsupportedError("part of the batch")
    first, last, _ = slice(start, end).indices(size)
    return ctx.b.op("slice", x, axis=axis, start=first, stop=last)


@_rule("aten.select.int")
def _select(ctx: Lowering, node: Node, x: Value, dim: int, index: int) -> Value:
    axis = dim % x.type.rank
    row = _window(ctx, x, axis, index, None if index == -1 else index + 1)
    return ctx.b.op("reshape", row, shape=ctx.type_of(node).shape)


@_rule("aten.split.Tensor", "aten.split_with_sizes.default", "aten.chunk.default")
def _split(ctx: Lowering, node: Node, x: Value, _: Any, dim: int = 0) -> tuple[Value, ...]:
    axis = dim % x.type.rank
    parts: list[Value] = []
    start = 0
    for fake in node.meta["val"]:
        parts.append(_window(ctx, x, axis, start, start + int(fake.shape[axis])))
        start += int(fake.shape[axis])
    return tuple(parts)


@_rule("<built-in function getitem>")
def _getitem(ctx: Lowering, node: Node, parts: Sequence[Value], index: int) -> Value:
    return parts[index]


@_rule("aten.cat.default")
def _concat(ctx: Lowering, node: Node, parts: Sequence[Value | Node], dim: int = 0) -> Value:
    result = ctx.type_of(node)
    # Empty tensors have no value; a partial rotary embedding of the whole head joins one.
    operands = [ctx.operand(part, result.dtype) for part in parts if isinstance(part, Value)]
    return ctx.b.op("concat", *operands, axis=dim % result.rank)


# --- contractions and attention -------------------------------------------------------------------------------------


@_rule("aten.embedding.default")
def _embedding(ctx: Lowering, node: Node, table: Value, token: Value, *_: Any) -> Value:
    return ctx.b.op("embedding", table, token)


@_rule("aten.linear.default")
def _linear(ctx: Lowering, node: Node, x: Value, weight: Value, bias: Value | None = None) -> Value:
    product = ctx.b.op("linear", x, weight)
    return product if bias is None else ctx.b.op("add", product, bias)


@_rule("aten.matmul.default", "aten.mm.default")
def _matmul(ctx: Lowering, node: Node, x: Value, y: Value) -> Value:
    if y.type.rank != 2 or ctx.b.matches(y, "constant") is None:
        raise UnsupportedError("of two computed tensors")
    return ctx.b.op("linear", x, ctx.b.op("transpose", y, perm=(1, 0)))


@_rule("aten.addmm.default")
def _addmm(ctx: Lowering, node: Node, bias: Value, x: Value, y: Value) -> Value:
    product = _matmul(ctx, node, x, y)
    assert isinstance(product, Value)
    return ctx.b.op("add", product, bias)


@_rule(OP_NAME)
def _attention(
    ctx: Lowering,
    node: Node,
    q: Value,
    k: Value,
    v: Value,
    layer: int,
    scale: float,
    window: int,
    extras: str,
) -> Value:
    if extras:
        raise UnsupportedError(f"attention with {extras}")
    heads, kv_heads = q.type.shape[1], k.type.shape[1]
    if not isinstance(heads, int) or not isinstance(kv_heads, int) or q.type.shape[2] != 1:
        raise UnsupportedError("attention over more than one new token")
    attrs: dict[str, int | float] = {"layer": layer, "scale": scale, "heads": heads, "kv_heads": kv_heads}
    if window:
        attrs["window"] = window
    return ctx.b.op("reshape", ctx.b.op("attention", q, k, v, **attrs), shape=ctx.type_of(node).shape)


# --- element-wise ---------------------------------------------------------------------------------------------------


def _binary(kind: str) -> Rule:
    def rule(ctx: Lowering, node: Node, a: Value | Number, b: Value | Number, *, alpha: Number = 1) -> Value:
        dtype = ctx.type_of(node).dtype
        right = ctx.operand(b, dtype)
        if alpha != 1:
            right = ctx.b.op("mul", right, ctx.b.scalar(alpha, dtype))
        return ctx.b.op(kind, ctx.operand(a, dtype), right)

    return rule


for _kind in ("add", "sub", "mul"):
    _rule(f"aten.{_kind}.Tensor", f"aten.{_kind}.Scalar")(_binary(_kind))
_rule("aten.maximum.default")(_binary("maximum"))


@_rule("aten.rsub.Scalar")
def _rsub(ctx: Lowering, node: Node, a: Value, b: Value | Number) -> Value:
    dtype = ctx.type_of(node).dtype
    return ctx.b.op("sub", ctx.operand(b, dtype), ctx.operand(a, dtype))


@_rule("aten.div.Tensor", "aten.div.Scalar")
def _div(ctx: Lowering, node: Node, a: Value | Number, b: Value | Number) -> Value:
    dtype = ctx.type_of(node).dtype
    if not isinstance(b, Value):
        return ctx.b.op("mul", ctx.operand(a, dtype), ctx.b.scalar(1.0 / b, dtype))
    inverse = ctx.b.op("recip", ctx.operand(b, dtype))
    return ctx.b.op("mul", ctx.operand(a, dtype), inverse)


def _unary(kind: str) -> Rule:
    def rule(ctx: Lowering, node: Node, x: Value) -> Value:
        return ctx.b.op(kind, ctx.operand(x, ctx.type_of(node).dtype))

    return rule


for _kind in ("neg", "exp", "rsqrt", "sigmoid", "tanh", "sin", "cos"):
    _rule(f"aten.{_kind}.default")(_unary(_kind))
_rule("aten.reciprocal.default")(_unary("recip"))


@_rule("aten.pow.Tensor_Scalar")
def _pow(ctx: Lowering, node: Node, x: Value, exponent: Number) -> Value:
    base = ctx.operand(x, ctx.type_of(node).dtype)
    if exponent == -0.5:
        return ctx.b.op("rsqrt", base)
    if exponent == -1:
        return ctx.b.op("recip", base)
    if exponent not in (1, 2, 3, 4):
        raise UnsupportedError(f"exponent {exponent}")
    square = ctx.b.op("mul", base, base)
    return {1: base, 2: square, 3: ctx.b.op("mul", square, base), 4: ctx.b.op("mul", square, square)}[int(exponent)]


@_rule("aten.silu.default")
def _silu(ctx: Lowering, node: Node, x: Value) -> Value:
    return ctx.b.op("mul", x, ctx.b.op("sigmoid", x))


@_rule("aten.relu.default")
def _relu(ctx: Lowering, node: Node, x: Value) -> Value:
    return ctx.b.op("maximum", x, ctx.b.scalar(0.0, x.type.dtype))


@_rule("aten.gelu.default")
def _gelu(ctx: Lowering, node: Node, x: Value, *, approximate: str = "none") -> Value:
    if approximate != "tanh":
        raise UnsupportedError("exact GELU; the tanh approximation has a lowering")
    dtype = x.type.dtype
    cube = ctx.b.op("mul", ctx.b.op("mul", x, x), x)
    inner = ctx.b.op("add", x, ctx.b.op("mul", cube, ctx.b.scalar(0.044715, dtype)))
    bent = ctx.b.op("tanh", ctx.b.op("mul", inner, ctx.b.scalar(math.sqrt(2.0 / math.pi), dtype)))
    gate = ctx.b.op("add", bent, ctx.b.scalar(1.0, dtype))
    return ctx.b.op("mul", ctx.b.op("mul", x, ctx.b.scalar(0.5, dtype)), gate)


@_rule("aten.lt.Tensor", "aten.lt.Scalar")
def _less(ctx: Lowering, node: Node, a: Value, b: Value | Number) -> Value:
    return ctx.b.op("less", a, ctx.operand(b, a.type.dtype))


@_rule("aten.gt.Tensor", "aten.gt.Scalar")
def _greater(ctx: Lowering, node: Node, a: Value, b: Value | Number) -> Value:
    return ctx.b.op("less", ctx.operand(b, a.type.dtype), a)


@_rule("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def _where(ctx: Lowering, node: Node, condition: Value, a: Value | Number, b: Value | Number) -> Value:
    dtype = ctx.type_of(node).dtype
    return ctx.b.op("select", condition, ctx.operand(a, dtype), ctx.operand(b, dtype))


# --- reductions -----------------------------------------------------------------------------------------------------


def _over_last_axis(x: Value, dims: int | Sequence[int] | None) -> None:
    axes = [dims] if isinstance(dims, int) else list(dims or ())
    if [axis % x.type.rank for axis in axes] != [x.type.rank - 1]:
        raise UnsupportedError(f"over axes {axes or 'all'} of rank {x.type.rank}; only the last axis can be reduced")


def _reduction(kind: str) -> Rule:
    def rule(
        ctx: Lowering, node: Node, x: Value, dims: int | Sequence[int] | None = None, keepdim: bool = False, **_: Any
    ) -> Value:
        _over_last_axis(x, dims)
        result = ctx.type_of(node)
        source = x if kind == "reduce_argmax" else ctx.operand(x, result.dtype)
        return ctx.b.op("reshape", ctx.b.op(kind, source), shape=result.shape)

    return rule


_rule("aten.sum.dim_IntList")(_reduction("reduce_sum"))
_rule("aten.amax.default")(_reduction("reduce_max"))


@_rule("aten.argmax.default")
def _argmax(ctx: Lowering, node: Node, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    # torch counts in i64, the graph in i32: the cast that usually follows folds away.
    index = _reduction("reduce_argmax")(ctx, node, x, dim)
    assert isinstance(index, Value)
    return index


@_rule("aten.mean.dim")
def _mean(ctx: Lowering, node: Node, x: Value, dims: Sequence[int], keepdim: bool = False, **_: Any) -> Value:
    total = _reduction("reduce_sum")(ctx, node, x, dims)
    size = x.type.shape[-1]
    assert isinstance(total, Value)
    assert isinstance(size, int)
    return ctx.b.op("mul", total, ctx.b.scalar(1.0 / size, total.type.dtype))


@_rule("aten.layer_norm.default")
def _layer_norm(
    ctx: Lowering,
    node: Node,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    _: bool = True,
) -> Value:
    if len(shape) != 1:
        raise UnsupportedError(f"over {len(shape)} axes")
    share = ctx.b.scalar(1.0 / shape[0], x.type.dtype)
    centred = ctx.b.op("sub", x, ctx.b.op("mul", ctx.b.op("reduce_sum", x), share))
    variance = ctx.b.op("mul", ctx.b.op("reduce_sum", ctx.b.op("mul", centred, centred)), share)
    spread = ctx.b.op("rsqrt", ctx.b.op("add", variance, ctx.b.scalar(eps, x.type.dtype)))
    result = ctx.b.op("mul", centred, spread)
    if weight is not None:
        result = ctx.b.op("mul", result, weight)
    return result if bias is None else ctx.b.op("add", result, bias)


@_rule("aten.softmax.int", "aten._softmax.default")
def _softmax(ctx: Lowering, node: Node, x: Value, dim: int, *_: Any) -> Value:
    _over_last_axis(x, dim)
    wide = ctx.operand(x, ctx.type_of(node).dtype)
    raised = ctx.b.op("exp", ctx.b.op("sub", wide, ctx.b.op("reduce_max", wide)))
    return ctx.b.op("mul", raised, ctx.b.op("recip", ctx.b.op("reduce_sum", raised)))
