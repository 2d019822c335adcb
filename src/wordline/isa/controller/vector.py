"""The pass of the near-memory vector unit: one fused expression over at most four vector operands.

Scratch is one linear byte space, ``channel * bytes_per_channel + offset``, taken modulo its size, so a vector that is
spread over channels is a strided vector. A pass runs over ``n0 * n1 * n2`` elements; element (i, j, k) of an operand is
at ``base + i*s0 + j*s1 + k*s2`` bytes. Values in a pass are numbered: 0-3 vector operands, 4-11 scalars, 12-27 results
of the operations in order (printed x0, k0, t0 and up). All arithmetic is float32. A pass reads all its operands before
it writes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from wordline.isa.declare import AffineWord, Bits, Constant, Engine, Group, Instruction, PackedWord

FIRST_SCALAR = 4
FIRST_RESULT = 12
MAX_OPERANDS, MAX_SCALARS, MAX_OPERATIONS, MAX_REDUCTIONS = FIRST_SCALAR, FIRST_RESULT - FIRST_SCALAR, 16, 2
#: Printed names of the values of a pass: vector operands, scalars (constants of the pass), results.
VALUES = (
    *(f"x{i}" for i in range(MAX_OPERANDS)),
    *(f"k{i}" for i in range(MAX_SCALARS)),
    *(f"t{i}" for i in range(MAX_OPERATIONS)),
)
DTYPES = ("bf16", "f32", "i32", "f16")
RESULT_DTYPES = ("bf16", "f32", "f16")
DTYPE_BYTES = (2, 4, 4, 2)
HOST_DTYPES = ("f16",)
"""Element formats that a vector unit does not have, only a host that runs the vector stream in its place."""
SCALAR_KINDS = ("f32", "shared_f32", "register_i32", "shared_i32")
REDUCTIONS = ("sum", "max", "argmax")


@dataclass(frozen=True, slots=True)
class VectorOp:
    """An operation of the pass.

    ``latency`` names the machine's ``vector_unit.latency`` entry, ``function`` its bit-exact NumPy meaning as
    "module.function".
    """

    name: str
    code: int
    arity: int
    latency: str
    function: str


VECTOR_OPS = (
    VectorOp("add", 0, 2, "add", "numpy.add"),
    VectorOp("sub", 1, 2, "sub", "numpy.subtract"),
    VectorOp("mul", 2, 2, "mul", "numpy.multiply"),
    VectorOp("fma", 3, 3, "fma", "wordline.numerics.vector.fma"),
    VectorOp("max", 4, 2, "max", "wordline.numerics.vector.maximum"),
    VectorOp("less", 5, 2, "less", "wordline.numerics.vector.less"),
    VectorOp("select", 6, 3, "select", "wordline.numerics.vector.select"),
    VectorOp("round_bf16", 7, 1, "round_bf16", "wordline.numerics.formats.round_bf16"),
    VectorOp("exp", 8, 1, "exp", "wordline.numerics.vector.exp"),
    VectorOp("recip", 9, 1, "recip", "wordline.numerics.vector.recip"),
    VectorOp("rsqrt", 10, 1, "rsqrt", "wordline.numerics.vector.rsqrt"),
    VectorOp("sigmoid", 11, 1, "sigmoid", "wordline.numerics.vector.sigmoid"),
    VectorOp("tanh", 12, 1, "tanh", "wordline.numerics.vector.tanh"),
    VectorOp("sin", 13, 1, "sin", "wordline.numerics.vector.sin"),
    VectorOp("cos", 14, 1, "cos", "wordline.numerics.vector.cos"),
)
OP_BY_CODE = {op.code: op for op in VECTOR_OPS}
OP_BY_NAME = {op.name: op for op in VECTOR_OPS}

VECTOR_CONSTANTS = (
    Constant("first_scalar_value", FIRST_SCALAR, "value number of the first scalar of a pass"),
    Constant("first_result_value", FIRST_RESULT, "value number of the first operation's result"),
    Constant("vector_op_arity", tuple(op.arity for op in VECTOR_OPS), "number of sources, by VectorOp"),
    Constant("dtype_bytes", DTYPE_BYTES, "bytes of an element, by Dtype"),
)

LAYOUT = PackedWord(
    "layout",
    (
        Bits("s0", 22, "stride of the outer index, bytes", signed=True, optional=True),
        Bits("s1", 22, "stride of the middle index, bytes", signed=True, optional=True),
        Bits("s2", 12, "stride of the inner index, bytes", signed=True, optional=True),
        Bits("dtype", 2, "element format", names=DTYPES, enum="Dtype"),
        Bits(
            "rotate",
            1,
            "rotate-half along the inner index: element k is -x[k + n2/2] for k < n2/2, else x[k - n2/2]; n2 is even",
            optional=True,
        ),
    ),
    "strides and format",
)
BASE = AffineWord("base", "value", "linear scratch byte address of element 0")


def _pass(state: Any, o: SimpleNamespace) -> None:
    from wordline.isa.controller.vector_pass import execute_pass

    execute_pass(state, o)


def _float_text(entry: dict[str, Any]) -> str:
    """The value of a scalar that is a constant."""
    scalar = entry["scalar"]
    if scalar.get("kind", 0):
        return ""
    return f"{struct.unpack('<f', struct.pack('<I', scalar.get('value', 0)))[0]:.9g}"


VECTOR_COMMANDS = (
    Instruction(
        "VPASS",
        64,
        (Engine.VECTOR,),
        "vector",
        "One pass. Elements whose flat index is below `low` or not below `high` are masked: skipped by reductions, "
        "stored as +0. `sum`: lane i mod 16 accumulates in ascending order from +0, then the tree i+8, i+4, i+2, i+1; "
        "`max` propagates NaN (nothing valid: -inf); `argmax` is the lowest index of the maximum (nothing valid: 0). "
        "A reduction writes its 32-bit word to a shared register at the end of the pass.",
        (
            Bits("n_operands", 3, "vector operands"),
            Bits("n_scalars", 4, "scalars"),
            Bits("n_operations", 5, "operations"),
            Bits("n_results", 1, "vector results"),
            Bits("n_reductions", 2, "reductions"),
        ),
        (
            AffineWord("n0", "value", "outer extent"),
            AffineWord("n1", "value", "middle extent"),
            AffineWord("n2", "value", "inner extent"),
            AffineWord("low", "value", "first valid flat index"),
            AffineWord("high", "value", "one past the last valid flat index"),
        ),
        (
            Group("operands", "n_operands", (BASE, LAYOUT), "vector operands, values 0-3"),
            Group(
                "scalars",
                "n_scalars",
                (
                    PackedWord(
                        "scalar",
                        (
                            Bits("kind", 2, "source", names=SCALAR_KINDS, enum="ScalarKind"),
                            Bits("value", 32, "float32 bits, or the register number"),
                        ),
                        "scalar",
                    ),
                ),
                "scalars, values 4-11",
                _float_text,
            ),
            Group(
                "operations",
                "n_operations",
                (
                    PackedWord(
                        "operation",
                        (
                            Bits("op", 8, "operation", names=tuple(op.name for op in VECTOR_OPS), enum="VectorOp"),
                            Bits("a", 6, "first source", names=VALUES),
                            Bits("b", 6, "second source", names=VALUES),
                            Bits("c", 6, "third source", names=VALUES),
                        ),
                        "operation",
                    ),
                ),
                "operations, values 12-27; an operation uses earlier values only",
            ),
            Group(
                "result",
                "n_results",
                (
                    BASE,
                    LAYOUT,
                    PackedWord(
                        "broadcast",
                        (
                            Bits(
                                "channels",
                                32,
                                "channel mask: the result goes to its offset in each channel named; "
                                "0: to its linear address",
                                optional=True,
                            ),
                            Bits("value", 6, "value stored", names=VALUES),
                        ),
                        "where the result goes",
                    ),
                ),
                "the vector result",
            ),
            Group(
                "reductions",
                "n_reductions",
                (
                    PackedWord(
                        "reduction",
                        (
                            Bits("kind", 2, "reduction", names=REDUCTIONS, enum="Reduction"),
                            Bits("value", 6, "value reduced", names=VALUES),
                            Bits("shared", 8, "shared register written"),
                        ),
                        "reduction",
                    ),
                ),
                "reductions",
            ),
        ),
        _pass,
    ),
)
