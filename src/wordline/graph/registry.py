"""Every operation of the graph, declared once. `docs/graph.md` is generated from this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from wordline.graph.ir import Attr
from wordline.graph.opdef import Array, AttrSpec, OpDef, ShapeError, Step
from wordline.graph.types import DTYPES, FLOATS, INTEGERS, Dim, Shape, TensorType

Types = Sequence[TensorType]
Attrs = Mapping[str, Attr]

REGISTRY: dict[str, OpDef] = {}


def _declare(definition: OpDef) -> None:
    if definition.kind in REGISTRY:
        raise ValueError(f"graph operation '{definition.kind}' is declared twice")
    REGISTRY[definition.kind] = definition


def lookup(kind: str) -> OpDef:
    """Declaration of an operation kind.

    Raises:
        ShapeError: there is no such operation.
    """
    try:
        return REGISTRY[kind]
    except KeyError:
        raise ShapeError(f"there is no graph operation '{kind}'") from None


def infer(kind: str, types: Types, attrs: Attrs) -> TensorType:
    """Result type of an operation whose type follows from its operands.

    Raises:
        ShapeError: the operands or attributes break the operation's rules.
    """
    definition = lookup(kind)
    definition.check(types, attrs)
    if definition.infer is None:
        raise ShapeError(f"the type of '{kind}' is declared, not inferred")
    return definition.infer(types, attrs)


def broadcast_shapes(left: Shape, right: Shape) -> Shape:
    """NumPy broadcasting over symbolic shapes: a dimension matches itself or 1.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    rank = max(len(left), len(right))
    padded_left = (1,) * (rank - len(left)) + left
    padded_right = (1,) * (rank - len(right)) + right
    shape: list[Dim] = []
    for a, b in zip(padded_left, padded_right, strict=True):
        if a == b or b == 1:
            shape.append(a)
        elif a == 1:
            shape.append(b)
        else:
            raise ShapeError(f"shapes {_show(left)} and {_show(right)} do not broadcast")
    return tuple(shape)


def _show(shape: Shape) -> str:
    return f"[{', '.join(str(dim) for dim in shape)}]"


def _int(attrs: Attrs, name: str) -> int:
    value = attrs[name]
    if not isinstance(value, int):
        raise ShapeError(f"attribute '{name}' must be an integer, got {value!r}")
    return value


def _dims(attrs: Attrs, name: str) -> Shape:
    value = attrs[name]
    if not isinstance(value, tuple):
        raise ShapeError(f"attribute '{name}' must be a list of dimensions, got {value!r}")
    return value


def _number(attrs: Attrs, name: str) -> float:
    value = attrs[name]
    if isinstance(value, str | tuple):
        raise ShapeError(f"attribute '{name}' must be a number, got {value!r}")
    return float(value)


def _axis(attrs: Attrs, rank: int) -> int:
    axis = _int(attrs, "axis")
    if not 0 <= axis < rank:
        raise ShapeError(f"axis {axis} is out of range for rank {rank}")
    return axis


def _static(dim: Dim, what: str) -> int:
    if not isinstance(dim, int):
        raise ShapeError(f"{what} must be a number, got the symbol '{dim}'")
    return dim


# --- sources --------------------------------------------------------------------------------------------------------


def _constant_reference(args: Sequence[Array], attrs: Attrs, step: Step) -> Array:
    if "name" in attrs:
        return step.constant(str(attrs["name"]))
    value = _number(attrs, "value")
    return np.asarray(int(value), np.int32) if isinstance(attrs["value"], int) else np.asarray(value, np.float32)


_declare(
    OpDef(
        "constant",
        "source",
        (),
        None,
        _constant_reference,
        "A scalar with its value, or a tensor of the graph's constants by name; its type is declared with it.",
        attrs={
            "name": AttrSpec("str", False, "name in the graph's constants"),
            "value": AttrSpec("number", False, "value of a scalar: an integer for integer types, else a float"),
        },
    )
)

# --- contractions ---------------------------------------------------------------------------------------------------


def _embedding_type(types: Types, attrs: Attrs) -> TensorType:
    table, token = types
    if table.rank != 2 or not table.is_float:
        raise ShapeError(f"embedding needs a float table [vocabulary, width], got {table}")
    if token.dtype not in INTEGERS:
        raise ShapeError(f"embedding needs integer tokens, got {token}")
    return TensorType(table.dtype, (*token.shape, table.shape[1]))


def _embedding_reference(args: Sequence[Array], attrs: Attrs, step: Step) -> Array:
    table, token = args
    return table[token]


def _linear_type(types: Types, attrs: Attrs) -> TensorType:
    x, w = types
    if w.rank != 2 or x.rank < 1 or not (x.is_float and w.is_float):
        raise ShapeError(f"linear needs x [..., K] and w [M, K] of float type, got {x} and {w}")
    if x.shape[-1] != w.shape[1]:
        raise ShapeError(f"linear: x has {x.shape[-1]} columns, w has {w.shape[1]}")
    return TensorType(x.dtype, (*x.shape[:-1], w.shape[0]))


def _linear_reference(args: Sequence[Array], attrs: Attrs, step: Step) -> Array:
    x, w = args
    return np.asarray(np.matmul(x, w.T), np.float32)


_declare(
    OpDef(
        "embedding",
        "contraction",
        ("table", "token"),
        _embedding_type,
        _embedding_reference,
        "Rows of `table` [V, D] selected by `token` [...]: [..., D].",
    )
)
_declare(
    OpDef(
        "linear",
        "contraction",
        ("x", "w"),
        _linear_type,
        _linear_reference,
        "x [..., K] times the transpose of w [M, K]: [..., M]. A bias is a following add.",
    )
)

# --- attention ------------------------------------------------------------------------------------------------------


def _attention_type(types: Types, attrs: Attrs) -> TensorType:
    q, k, v = types
    heads, kv_heads = _int(attrs, "heads"), _int(attrs, "kv_heads")
    for name, operand, count in (("q", q, heads), ("k", k, kv_heads), ("v", v, kv_heads)):
        if operand.rank != 4 or operand.shape[2] != 1 or operand.shape[1] != count:
            raise ShapeError(f"attention needs {name} as [batch, {count}, 1, head], got {operand}")
        if operand.dtype != q.dtype or not operand.is_float:
            raise ShapeError(f"attention needs q, k and v of one float type, got {q}, {k}, {v}")
    if q.shape[3] != k.shape[3]:
        raise ShapeError(f"attention: q has head size {q.shape[3]}, k has {k.shape[3]}")
    if heads % kv_heads:
        raise ShapeError(f"attention: {heads} query heads do not divide among {kv_heads} key/value heads")
    if "window" in attrs and _int(attrs, "window") < 1:
        raise ShapeError(f"attention: window must be at least 1, got {attrs['window']}")
    return TensorType(q.dtype, (q.shape[0], 1, heads * _static(v.shape[3], "head size")))


def _attention_reference(args: Sequence[Array], attrs: Attrs, step: Step) -> Array:
    q, k, v = args
    cache = step.cache(_int(attrs, "layer"))
    cache.append(step.position, k[:, :, 0], v[:, :, 0])
    group = _int(attrs, "heads") // _int(attrs, "kv_heads")
    scale = np.float32(_number(attrs, "scale"))
    lanes = []
    for lane, position in enumerate(step.position.tolist()):
        first = max(0, position - _int(attrs, "window") + 1) if "window" in attrs else 0
        keys, values = cache.window(lane, first, position)
        query = q[lane, :, 0].reshape(keys.shape[0], group, keys.shape[2])
        scores = np.matmul(query, keys.transpose(0, 2, 1)) * scale
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True, dtype=np.float32)
        lanes.append(np.matmul(weights, values).reshape(1, -1))
    return np.stack(lanes).astype(np.float32)


_declare(
    OpDef(
        "attention",
        "state",
        ("q", "k", "v"),
        _attention_type,
        _attention_reference,
        "Owns the KV cache of `layer`: writes k and v [B, kv_heads, 1, D] at the graph input `position`, then attends "
        "with q [B, heads, 1, D] over positions max(0, position - window + 1) .. position (0 .. position without a "
        "window): softmax(scale * q k^T) v, query head h reading key/value head h // (heads / kv_heads). The result is "
        "[B, 1, heads * D].",
        attrs={
            "layer": AttrSpec("int", True, "which cache"),
            "scale": AttrSpec("float", True, "factor on the scores"),
            "heads": AttrSpec("int", True, "query heads"),
            "kv_heads": AttrSpec("int", True, "key/value heads; divides `heads`"),
            "window": AttrSpec("int", False, "number of positions attended to, the current one included"),
        },
    )
)

# --- element-wise ---------------------------------------------------------------------------------------------------


def _unary_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    if not x.is_float:
        raise ShapeError(f"needs a float operand, got {x}")
    return x


def _binary_type(types: Types, attrs: Attrs) -> TensorType:
    a, b = types
    if a.dtype != b.dtype or a.dtype == "bool":
        raise ShapeError(f"needs operands of one number type, got {a} and {b}")
    return TensorType(a.dtype, broadcast_shapes(a.shape, b.shape))


def _less_type(types: Types, attrs: Attrs) -> TensorType:
    return _binary_type(types, attrs).with_dtype("bool")


def _select_type(types: Types, attrs: Attrs) -> TensorType:
    condition, a, b = types
    if condition.dtype != "bool" or a.dtype != b.dtype:
        raise ShapeError(f"select needs a bool condition and two operands of one type, got {condition}, {a}, {b}")
    return TensorType(a.dtype, broadcast_shapes(condition.shape, broadcast_shapes(a.shape, b.shape)))


def _cast_type(types: Types, attrs: Attrs) -> TensorType:
    for name in DTYPES:
        if name == attrs["dtype"]:
            return types[0].with_dtype(name)  # type: ignore[arg-type]  # a member of DTYPES
    raise ShapeError(f"cast to unknown element type {attrs['dtype']!r}")


def _cast_reference(args: Sequence[Array], attrs: Attrs, step: Step) -> Array:
    storage = {"bf16": np.float32, "f32": np.float32, "i32": np.int32, "i64": np.int64, "bool": np.bool_}
    return args[0].astype(storage[str(attrs["dtype"])])


def _elementwise(kind: str, function: Callable[..., Array], meaning: str, *, commutative: bool = False) -> None:
    def reference(args: Sequence[Array], attrs: Attrs, step: Step) -> Array:
        return np.asarray(function(*args), args[0].dtype)

    operands = ("x",) if not commutative and kind not in ("sub",) else ("a", "b")
    shape_rule = _unary_type if len(operands) == 1 else _binary_type
    _declare(OpDef(kind, "elementwise", operands, shape_rule, reference, meaning, commutative=commutative))


def _sigmoid(x: Array) -> Array:
    # exp of the negated absolute value never overflows, whatever the sign of x.
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, np.float32(1), decay) / (np.float32(1) + decay))


_elementwise("add", np.add, "a + b.", commutative=True)
_elementwise("sub", np.subtract, "a - b.")
_elementwise("mul", np.multiply, "a * b.", commutative=True)
_elementwise("maximum", np.maximum, "The larger of a and b; NaN if either is NaN.", commutative=True)
_elementwise("neg", np.negative, "-x.")
_elementwise("exp", np.exp, "e to the power x.")
_elementwise("recip", lambda x: np.float32(1) / x, "1 / x.")
_elementwise("rsqrt", lambda x: np.float32(1) / np.sqrt(x), "1 / sqrt(x).")
_elementwise("sigmoid", _sigmoid, "1 / (1 + exp(-x)).")
_elementwise("tanh", np.tanh, "Hyperbolic tangent.")
_elementwise("sin", np.sin, "Sine of x in radians.")
_elementwise("cos", np.cos, "Cosine of x in radians.")
_declare(
    OpDef(
        "less",
        "elementwise",
        ("a", "b"),
        _less_type,
        lambda args, attrs, step: np.less(*args),
        "Whether a < b, as bool; false if either is NaN.",
    )
)
_declare(
    OpDef(
        "select",
        "elementwise",
        ("condition", "a", "b"),
        _select_type,
        lambda args, attrs, step: np.where(*args),
        "a where the condition holds, else b.",
    )
)
_declare(
    OpDef(
        "cast",
        "elementwise",
        ("x",),
        _cast_type,
        _cast_reference,
        "x converted to `dtype`; to bf16 with rounding to nearest even, to integers toward zero.",
        attrs={"dtype": AttrSpec("str", True, f"one of {', '.join(DTYPES)}")},
    )
)

# --- reductions -----------------------------------------------------------------------------------------------------


def _reduce_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    if x.rank < 1 or x.dtype not in FLOATS:
        raise ShapeError(f"a reduction needs a float operand of rank 1 or more, got {x}")
    return x.with_shape((*x.shape[:-1], 1))


def _argmax_type(types: Types, attrs: Attrs) -> TensorType:
    return _reduce_type(types, attrs).with_dtype("i32")


_declare(
    OpDef(
        "reduce_sum",
        "reduction",
        ("x",),
        _reduce_type,
        lambda args, attrs, step: args[0].sum(axis=-1, keepdims=True, dtype=np.float32),
        "Sum over the last axis, which stays with size 1.",
    )
)
_declare(
    OpDef(
        "reduce_max",
        "reduction",
        ("x",),
        _reduce_type,
        lambda args, attrs, step: args[0].max(axis=-1, keepdims=True),
        "Maximum over the last axis, which stays with size 1; NaN if there is one.",
    )
)
_declare(
    OpDef(
        "reduce_argmax",
        "reduction",
        ("x",),
        _argmax_type,
        lambda args, attrs, step: args[0].argmax(axis=-1, keepdims=True).astype(np.int32),
        "Lowest index of the maximum over the last axis (the first NaN if any), i32; the axis stays with size 1.",
    )
)

# --- views ----------------------------------------------------------------------------------------------------------


def _reshape_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    result = x.with_shape(_dims(attrs, "shape"))
    if x.static_elements() != result.static_elements() or sorted(x.symbols) != sorted(result.symbols):
        raise ShapeError(f"reshape of {x} to {_show(result.shape)} changes the number of elements")
    return result


def _transpose_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    perm = [_static(dim, "an axis") for dim in _dims(attrs, "perm")]
    if sorted(perm) != list(range(x.rank)):
        raise ShapeError(f"transpose: {perm} is no permutation of the {x.rank} axes of {x}")
    return x.with_shape(tuple(x.shape[axis] for axis in perm))


def _slice_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    axis = _axis(attrs, x.rank)
    start, stop = _int(attrs, "start"), _int(attrs, "stop")
    if not 0 <= start < stop <= _static(x.shape[axis], "the sliced axis"):
        raise ShapeError(f"slice {start}:{stop} is empty or outside axis {axis} of {x}")
    return x.with_shape((*x.shape[:axis], stop - start, *x.shape[axis + 1 :]))


def _slice_reference(args: Sequence[Array], attrs: Attrs, step: Step) -> Array:
    window = slice(_int(attrs, "start"), _int(attrs, "stop"))
    return args[0][(slice(None),) * _int(attrs, "axis") + (window,)]


def _broadcast_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    shape = _dims(attrs, "shape")
    if broadcast_shapes(x.shape, shape) != shape:
        raise ShapeError(f"{x} does not broadcast to {_show(shape)}")
    return x.with_shape(shape)


def _concat_type(types: Types, attrs: Attrs) -> TensorType:
    first = types[0]
    axis = _axis(attrs, first.rank)
    size = 0
    for x in types:
        same_rest = x.shape[:axis] + x.shape[axis + 1 :] == first.shape[:axis] + first.shape[axis + 1 :]
        if x.dtype != first.dtype or x.rank != first.rank or not same_rest:
            raise ShapeError(f"concat along axis {axis} of different types: {first} and {x}")
        size += _static(x.shape[axis], "the joined axis")
    return first.with_shape((*first.shape[:axis], size, *first.shape[axis + 1 :]))


def _rotate_half_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    if x.rank < 1 or not x.is_float or _static(x.shape[-1], "the last axis") % 2:
        raise ShapeError(f"rotate_half needs a float operand with an even last axis, got {x}")
    return x


def _rotate_half_reference(args: Sequence[Array], attrs: Attrs, step: Step) -> Array:
    (x,) = args
    half = x.shape[-1] // 2
    return np.concatenate([-x[..., half:], x[..., :half]], axis=-1)


_declare(
    OpDef(
        "reshape",
        "view",
        ("x",),
        _reshape_type,
        lambda args, attrs, step: args[0].reshape(step.dims(_dims(attrs, "shape"))),
        "The same elements in the same order with another shape.",
        attrs={"shape": AttrSpec("dims", True, "the new shape; symbols by name")},
    )
)
_declare(
    OpDef(
        "transpose",
        "view",
        ("x",),
        _transpose_type,
        lambda args, attrs, step: args[0].transpose(step.dims(_dims(attrs, "perm"))),
        "Axes reordered: result axis i is operand axis perm[i].",
        attrs={"perm": AttrSpec("dims", True, "a permutation of the axes")},
    )
)
_declare(
    OpDef(
        "slice",
        "view",
        ("x",),
        _slice_type,
        _slice_reference,
        "Elements start .. stop - 1 of one axis.",
        attrs={name: AttrSpec("int") for name in ("axis", "start", "stop")},
    )
)
_declare(
    OpDef(
        "broadcast",
        "view",
        ("x",),
        _broadcast_type,
        lambda args, attrs, step: np.broadcast_to(args[0], step.dims(_dims(attrs, "shape"))),
        "x repeated along missing axes and axes of size 1. Element-wise operations broadcast by themselves.",
        attrs={"shape": AttrSpec("dims", True, "the new shape; symbols by name")},
    )
)
_declare(
    OpDef(
        "concat",
        "view",
        ("x...",),
        _concat_type,
        lambda args, attrs, step: np.concatenate(args, axis=_int(attrs, "axis")),
        "Operands joined along an axis.",
        attrs={"axis": AttrSpec("int")},
    )
)
_declare(
    OpDef(
        "rotate_half",
        "view",
        ("x",),
        _rotate_half_type,
        _rotate_half_reference,
        "The halves of the last axis exchanged, the new first one negated: concat(-x[h:], x[:h]).",
    )
)
