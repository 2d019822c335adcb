"""The canonical form of a graph, as rewrite rules.

Every rule keeps the exact meaning of the graph, signs of zeros included: a canonical graph can be compared bit for bit
with the one it came from.
"""

from __future__ import annotations

import numpy as np

from wordline.graph.builder import GraphBuilder, Rule, rebuild
from wordline.graph.ir import Attr, Constant, Graph, Op, Value
from wordline.graph.opdef import Array, KVCache
from wordline.graph.registry import lookup
from wordline.graph.types import Dim, TensorType
from wordline.numerics.formats import round_bf16

_FOLD_GROWTH_LIMIT = 1 << 16
"""A folded constant may have this many elements even if its operands have fewer: folding must not cost memory."""


def canonicalise(graph: Graph) -> Graph:
    """The canonical form.

    Constants are folded, views merged, casts that change nothing and explicit broadcasts of element-wise operands
    removed, rotations named, equal operations shared, dead ones dropped.
    """
    return rebuild(graph, CANONICAL_RULES)


def _drop_identities(b: GraphBuilder, kind: str, operands: tuple[Value, ...], attrs: dict[str, Attr]) -> Value | None:
    """Casts to the same type, views that change nothing, joins of one operand, multiplication by one."""
    if kind in ("cast", "reshape", "broadcast", "slice", "concat") and len(operands) == 1:
        return operands[0] if b.infer(kind, operands, attrs) == operands[0].type else None
    if kind == "transpose" and attrs["perm"] == tuple(range(operands[0].type.rank)):
        return operands[0]
    if kind == "mul" and b.scalar_value(operands[1]) == 1.0:
        return operands[0]
    return None


def _constants_last(b: GraphBuilder, kind: str, operands: tuple[Value, ...], attrs: dict[str, Attr]) -> Value | None:
    """Commutative operations take a constant as their second operand; scalars after tensors."""
    if not lookup(kind).commutative:
        return None
    first, second = (_constant_rank(b, value) for value in operands)
    return b.op(kind, operands[1], operands[0]) if first > second else None


def _constant_rank(b: GraphBuilder, value: Value) -> int:
    if b.matches(value, "constant") is None:
        return 0
    return 1 if value.type.rank else 2


def _merge_views(b: GraphBuilder, kind: str, operands: tuple[Value, ...], attrs: dict[str, Attr]) -> Value | None:
    """Reshape of reshape, transpose of transpose; a transpose that moves only axes of size 1 is a reshape."""
    if kind == "reshape" and (inner := b.matches(operands[0], "reshape")):
        return b.op("reshape", inner.operands[0], **attrs)
    if kind == "transpose":
        perm = attrs["perm"]
        assert isinstance(perm, tuple)  # schema
        if inner := b.matches(operands[0], "transpose"):
            first = inner.attrs["perm"]
            assert isinstance(first, tuple)
            composed = tuple(first[axis] for axis in perm if isinstance(axis, int))
            return b.op("transpose", inner.operands[0], perm=composed)
        shape = operands[0].type.shape
        moved = [axis for axis in perm if isinstance(axis, int) and shape[axis] != 1]
        if moved == sorted(moved):
            return b.op("reshape", operands[0], shape=b.infer(kind, operands, attrs).shape)
    return None


def _implicit_broadcast(
    b: GraphBuilder, kind: str, operands: tuple[Value, ...], attrs: dict[str, Attr]
) -> Value | None:
    """Element-wise operations broadcast by themselves: read through `broadcast` where the result type stays."""
    if lookup(kind).group != "elementwise" or len(operands) < 2:
        return None
    wanted = b.infer(kind, operands, attrs)
    for index, value in enumerate(operands):
        if inner := b.matches(value, "broadcast"):
            direct = (*operands[:index], inner.operands[0], *operands[index + 1 :])
            if b.infer(kind, direct, attrs) == wanted:
                return b.op(kind, *direct, **attrs)
    return None


def _rotate_half(b: GraphBuilder, kind: str, operands: tuple[Value, ...], attrs: dict[str, Attr]) -> Value | None:
    """concat(-x[h:], x[:h]) along the last axis."""
    if kind != "concat" or len(operands) != 2 or attrs["axis"] != operands[0].type.rank - 1:
        return None
    negated = b.matches(operands[0], "neg")
    high = b.matches(negated.operands[0], "slice") if negated else None
    low = b.matches(operands[1], "slice")
    if high is None or low is None or high.operands != low.operands:
        return None
    size = low.operands[0].type.shape[-1]
    if not isinstance(size, int) or size % 2 or not (_covers(low, 0, size // 2) and _covers(high, size // 2, size)):
        return None
    return b.op("rotate_half", low.operands[0])


def _covers(op: Op, start: int, stop: int) -> bool:
    return op.attrs == {"axis": op.operands[0].type.rank - 1, "start": start, "stop": stop}


def _repeat_of_table(b: GraphBuilder, kind: str, operands: tuple[Value, ...], attrs: dict[str, Attr]) -> Value | None:
    """concat(f, f, ...) of one element-wise expression over constants repeats the constants instead of the work."""
    axis = attrs.get("axis")
    if kind != "concat" or not isinstance(axis, int) or len(operands) < 2 or len(set(operands)) != 1:
        return None
    return _repeat(b, operands[0], operands[0].type.rank - 1 - axis, len(operands))


def _repeat(b: GraphBuilder, value: Value, axis_from_end: int, times: int) -> Value | None:
    """`value` repeated along an axis counted from the last, if it depends on inputs only through axes of size 1."""
    op = b.producer(value)
    axis = value.type.rank - 1 - axis_from_end
    if op is None:
        return None
    if op.kind == "constant":
        return b.op("concat", *[value] * times, axis=axis)
    if lookup(op.kind).group != "elementwise":
        return None
    repeated: list[Value] = []
    for operand in op.operands:
        operand_axis = operand.type.rank - 1 - axis_from_end
        if operand_axis < 0 or (operand.type.shape[operand_axis] == 1 != value.type.shape[axis]):
            repeated.append(operand)
        elif (grown := _repeat(b, operand, axis_from_end, times)) is not None:
            repeated.append(grown)
        else:
            return None
    return b.op(op.kind, *repeated, **dict(op.attrs))


class _StaticStep:
    """The step that folding runs in: constants only, no symbols, no state."""

    def __init__(self, constants: dict[str, Constant]) -> None:
        self._constants = constants

    @property
    def position(self) -> Array:
        raise AssertionError("constants do not depend on the position")

    def dims(self, shape: tuple[Dim, ...]) -> tuple[int, ...]:
        return tuple(dim for dim in shape if isinstance(dim, int))

    def constant(self, name: str) -> Array:
        data = self._constants[name].data
        assert data is not None  # checked before
        return data

    def cache(self, layer: int) -> KVCache:
        raise AssertionError("constants do not depend on a cache")


def _fold_constants(b: GraphBuilder, kind: str, operands: tuple[Value, ...], attrs: dict[str, Attr]) -> Value | None:
    """Operations on constants become constants; those on unbound weights become unbound ones of the same name."""
    sources = [b.matches(value, "constant") for value in operands]
    definition = lookup(kind)
    if not sources or definition.group == "state" or not all(sources):
        return None
    result = b.infer(kind, operands, attrs)
    known = sum(value.type.static_elements() for value in operands)
    if result.symbols or result.static_elements() > max(known, _FOLD_GROWTH_LIMIT):
        return None
    if kind == "embedding":
        return None
    step = _StaticStep(b.constants)
    arrays: list[Array] = []
    inline = True
    for source in sources:
        assert source is not None
        named = b.constants[str(source.attrs["name"])] if "name" in source.attrs else None
        if named is not None and named.data is None:
            return b.constant(_folded_name(b, kind, sources, attrs, result), Constant(result, None))
        inline = inline and (named is None or named.inline)
        arrays.append(lookup("constant").reference((), source.attrs, step))
    with np.errstate(all="ignore"):
        data = np.asarray(definition.reference(arrays, attrs, step), order="C")
    if result.dtype == "bf16":
        data = round_bf16(data)
    if inline and result.rank == 0 and result.dtype != "bool":
        return b.scalar(data.item(), result.dtype)
    return b.constant(_folded_name(b, kind, sources, attrs, result), Constant(result, data, inline))


def _folded_name(
    b: GraphBuilder, kind: str, sources: list[Op | None], attrs: dict[str, Attr], result: TensorType
) -> str:
    """The expression itself: equal for bound and unbound weights, and unique because it says everything."""
    parts = [str(op.attrs.get("name", op.attrs.get("value"))) for op in sources if op is not None]
    parts += [f"{name}={_show(value)}" for name, value in sorted(attrs.items())]
    return f"{kind}({', '.join(parts)})"


def _show(value: Attr) -> str:
    return "x".join(str(dim) for dim in value) if isinstance(value, tuple) else str(value)


CANONICAL_RULES: tuple[Rule, ...] = (
    _drop_identities,
    _constants_last,
    _fold_constants,
    _merge_views,
    _implicit_broadcast,
    _rotate_half,
    _repeat_of_table,
)
