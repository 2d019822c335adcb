"""The expressions of a vector region: graph operations as a hash-consed DAG of what the vector unit knows.

Leaves are tensors in scratch and scalars; inner nodes are operations of the pass, views, rotate-half, concat and
reductions. Equal expressions are one node, so common subexpressions are found by construction.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from wordline.compiler.kernel.passes import ScalarSource, SharedScalar
from wordline.compiler.kernel.scratch import ScratchTensor
from wordline.compiler.kernel.symbols import Register
from wordline.errors import WordlineError
from wordline.graph.ir import Op, Value
from wordline.graph.types import TensorType
from wordline.isa.controller.vector import OP_BY_NAME
from wordline.isa.controller.vector_pass import OPERATIONS

Shape = tuple[int, ...]
RegionInput = ScratchTensor | ScalarSource

#: Graph operations that are one pass operation each.
_DIRECT = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "fma": "fma",
    "maximum": "max",
    "less": "less",
    "select": "select",
    "exp": "exp",
    "recip": "recip",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "sin": "sin",
    "cos": "cos",
}
#: Operations whose result is one of their operands (or 0 or 1), so that a bf16 result needs no rounding.
_EXACT = ("maximum", "less", "select")
_REDUCTIONS = {"reduce_sum": "sum", "reduce_max": "max", "reduce_argmax": "argmax"}


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One expression.

    Attributes:
        kind: "tensor", "scalar", "op", "reshape", "transpose", "slice", "broadcast", "rotate", "concat" or "reduce".
        args: operands.
        detail: the scratch tensor; the scalar; the operation's name; the permutation; ``(axis, start)`` of a slice;
            the axis of a concat; the reduction's name.
        shape: extents. A scalar has ``()`` and stands for every shape.
        number: position in creation order, which is a topological order.
    """

    kind: str
    args: tuple[Node, ...]
    detail: Hashable
    shape: Shape
    number: int

    @property
    def size(self) -> int:
        """Number of elements; 1 for a scalar."""
        return prod(self.shape)


class Expressions:
    """Builds nodes; equal requests give the same node."""

    def __init__(self) -> None:
        self._nodes: dict[Hashable, Node] = {}

    def node(self, kind: str, args: tuple[Node, ...], detail: Hashable, shape: Shape) -> Node:
        """The one node of this kind, arguments, detail and shape."""
        key = (kind, tuple(arg.number for arg in args), detail, shape)
        if key not in self._nodes:
            self._nodes[key] = Node(kind, args, detail, shape, len(self._nodes))
        return self._nodes[key]

    def tensor(self, tensor: ScratchTensor, shape: Shape) -> Node:
        """What lies in scratch, seen with ``shape``."""
        return self.node("tensor", (), tensor, shape)

    def scalar(self, source: ScalarSource) -> Node:
        """A number or a register; it has no shape of its own."""
        if isinstance(source, int | float):
            # Keyed by bits: 0.0 and -0.0 are different scalars.
            return self.node("scalar", (), Number(int(np.float32(source).view(np.uint32))), ())
        return self.node("scalar", (), source, ())

    def op(self, name: str, args: Sequence[Node], shape: Shape) -> Node:
        """An element-wise operation; arguments are broadcast to ``shape``. Numbers fold by the unit's own function."""
        if all(isinstance(arg.detail, Number) for arg in args):
            with np.errstate(all="ignore"):
                _, function = OPERATIONS[OP_BY_NAME[name].code]
                value = function(*(arg.detail.value for arg in args if isinstance(arg.detail, Number)))
            return self.scalar(float(value.reshape(())))
        return self.node("op", tuple(self.broadcast(arg, shape) for arg in args), name, shape)

    def broadcast(self, x: Node, shape: Shape) -> Node:
        """``x`` repeated to ``shape``; scalars stand for every shape already."""
        return x if x.kind == "scalar" or x.shape == shape else self.node("broadcast", (x,), None, shape)

    def spread(self, x: Node, shape: Shape) -> Node:
        """``x`` with a shape of its own, also if it is a scalar."""
        return self.node("broadcast", (x,), None, shape) if x.kind == "scalar" else x

    def reshape(self, x: Node, shape: Shape) -> Node:
        """The same elements in the same order with another shape."""
        if x.kind == "reshape":
            x = x.args[0]
        if x.kind == "scalar" or x.shape == shape:
            return x
        return self.node("reshape", (x,), None, shape)


@dataclass(frozen=True, slots=True)
class Number:
    """A float32 by its bits."""

    bits: int

    @property
    def value(self) -> np.ndarray[tuple[()], np.dtype[np.float32]]:
        return np.array(self.bits, dtype=np.uint32).view(np.float32)


def scalar_source(node: Node) -> ScalarSource:
    """What a scalar node stands for in a pass."""
    detail = node.detail
    if isinstance(detail, Number):
        return float(detail.value)
    assert isinstance(detail, SharedScalar | Register)
    return detail


def import_ops(
    expressions: Expressions,
    ops: Sequence[Op],
    inputs: Mapping[Value, RegionInput],
    bindings: Mapping[str, int],
) -> dict[Value, Node]:
    """The node of every value that ``ops`` (in order) define, given where their inputs are.

    Raises:
        WordlineError: "vector-op", an operation the vector unit cannot do.
    """
    nodes: dict[Value, Node] = {}
    for value, where in inputs.items():
        if isinstance(where, ScratchTensor):
            shape = value.type.concrete_shape(bindings)
            if where.elements != prod(shape):
                raise ValueError(f"{value} has {prod(shape)} elements, its scratch tensor {where} has {where.elements}")
            nodes[value] = expressions.tensor(where, shape)
        else:
            nodes[value] = expressions.scalar(where)
    for op in ops:
        if op.result not in nodes:
            nodes[op.result] = _import(expressions, op, [nodes[x] for x in op.operands], bindings)
    return nodes


def _import(expressions: Expressions, op: Op, args: list[Node], bindings: Mapping[str, int]) -> Node:
    shape = op.result.type.concrete_shape(bindings)
    attrs = op.attrs
    if op.kind in _DIRECT:
        result = expressions.op(_DIRECT[op.kind], args, shape)
        rounds = op.result.type.dtype == "bf16" and op.kind not in _EXACT
        return expressions.op("round_bf16", [result], shape) if rounds else result
    if op.kind == "neg":
        return expressions.op("mul", [args[0], expressions.scalar(-1.0)], shape)
    if op.kind == "cast":
        return _cast(expressions, op, args[0], shape)
    if op.kind == "constant" and "value" in attrs:
        return expressions.scalar(float(attrs["value"]))  # type: ignore[arg-type]  # a number by the op's schema
    shaped = [
        expressions.spread(node, value.type.concrete_shape(bindings))
        for node, value in zip(args, op.operands, strict=True)
    ]
    if op.kind in _REDUCTIONS:
        result = expressions.node("reduce", (shaped[0],), _REDUCTIONS[op.kind], shape)
        rounds = op.result.type.dtype == "bf16" and op.kind == "reduce_sum"
        return expressions.op("round_bf16", [result], shape) if rounds else result
    match op.kind:
        case "concat":
            return expressions.node("concat", tuple(shaped), attrs["axis"], shape)
        case "rotate_half":
            return expressions.node("rotate", (shaped[0],), None, shape)
        case "reshape":
            return expressions.reshape(args[0], shape)
        case "broadcast":
            return expressions.broadcast(args[0], shape)
        case "transpose" | "slice" if args[0].kind == "scalar":
            return args[0]
        case "transpose":
            return expressions.node("transpose", (args[0],), attrs["perm"], shape)
        case "slice":
            return expressions.node("slice", (args[0],), (attrs["axis"], attrs["start"]), shape)
    raise WordlineError(
        "vector-op",
        f"the vector unit has no operation for '{op.kind}'",
        where=op.loc or str(op.result),
        remedy="place it elsewhere",
    )


def _cast(expressions: Expressions, op: Op, x: Node, shape: Shape) -> Node:
    source, target = op.operands[0].type, op.result.type
    if target.dtype == "bf16" and source.dtype in ("f32", "i32", "i64"):
        return expressions.op("round_bf16", [x], shape)
    if target.dtype == "bool" and source.dtype != "bool":
        return expressions.op("select", [x, expressions.scalar(1.0), expressions.scalar(0.0)], shape)
    if _is_integer(target) and source.is_float:
        raise WordlineError(
            "vector-op",
            f"the vector unit cannot convert {source.dtype} to {target.dtype}",
            where=op.loc or str(op.result),
            remedy="place it elsewhere",
        )
    # Integers and truth values are float32 in a pass (exact up to 2^24), bf16 values are float32 already.
    return x


def _is_integer(kind: TensorType) -> bool:
    return kind.dtype in ("i32", "i64")
