"""The pass of the near-memory vector unit: one fused expression over at most four vector operands.

Scratch is one linear byte space, ``channel * bytes_per_channel + offset``, taken modulo its size, so a vector that is spread over channels is a
strided vector. A pass runs over ``n0 * n1 * n2`` elements; element (i, j, k) of an operand is at ``base + i*s0 + j*s1 + k*s2`` bytes.
Values in a pass are numbered: 0-3 vector operands, 4-11 scalars, 12-27 results of the operations in order. All arithmetic is float32.
A pass reads all its operands before it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.isa.declare import AffineWord, Bits, Engine, Group, Instruction, PackedWord
from wordline.numerics import formats
from wordline.numerics import vector as vf

F32 = npt.NDArray[np.float32]

FIRST_SCALAR = 4
FIRST_RESULT = 12
DTYPES = ("bf16", "f32", "i32")
DTYPE_BYTES = (2, 4, 4)
SCALAR_KINDS = ("f32", "shared_f32", "register_i32", "shared_i32")
REDUCTIONS = ("sum", "max", "argmax")


@dataclass(frozen=True, slots=True)
class VectorOp:
    """An operation of the pass: ``latency`` names the machine's ``vector_unit.latency`` entry, ``function`` is its NumPy meaning."""

    name: str
    code: int
    arity: int
    latency: str
    function: Callable[..., F32]


VECTOR_OPS = (
    VectorOp("add", 0, 2, "add", np.add),
    VectorOp("sub", 1, 2, "sub", np.subtract),
    VectorOp("mul", 2, 2, "mul", np.multiply),
    VectorOp("fma", 3, 3, "fma", vf.fma),
    VectorOp("max", 4, 2, "max", vf.maximum),
    VectorOp("less", 5, 2, "less", vf.less),
    VectorOp("select", 6, 3, "select", vf.select),
    VectorOp("round_bf16", 7, 1, "round_bf16", formats.round_bf16),
    VectorOp("exp", 8, 1, "exp", vf.exp),
    VectorOp("recip", 9, 1, "recip", vf.recip),
    VectorOp("rsqrt", 10, 1, "rsqrt", vf.rsqrt),
    VectorOp("sigmoid", 11, 1, "sigmoid", vf.sigmoid),
    VectorOp("tanh", 12, 1, "tanh", vf.tanh),
    VectorOp("sin", 13, 1, "sin", vf.sin),
    VectorOp("cos", 14, 1, "cos", vf.cos),
)
OP_BY_CODE = {op.code: op for op in VECTOR_OPS}
OP_BY_NAME = {op.name: op for op in VECTOR_OPS}

LAYOUT = PackedWord(
    "layout",
    (
        Bits("s0", 22, "stride of the outer index, bytes", signed=True),
        Bits("s1", 22, "stride of the middle index, bytes", signed=True),
        Bits("s2", 12, "stride of the inner index, bytes", signed=True),
        Bits("dtype", 2, "element format", names=DTYPES),
        Bits("rotate", 1, "rotate-half along the inner index: element k is -x[k + n2/2] for k < n2/2, else x[k - n2/2]", names=("straight", "rotate")),
    ),
    "strides and format",
)
BASE = AffineWord("base", "value", "linear scratch byte address of element 0")


def element_addresses(shape: tuple[int, int, int], base: int, layout: SimpleNamespace, space: int) -> npt.NDArray[np.int64]:
    """Byte addresses [n0*n1*n2] of an operand's elements, modulo the scratch size ``space``."""
    i, j, k = (np.arange(n, dtype=np.int64) for n in shape)
    if layout.rotate:
        k = (k + shape[2] // 2) % shape[2]
    addresses = base + i[:, None, None] * layout.s0 + j[None, :, None] * layout.s1 + k[None, None, :] * layout.s2
    return addresses.reshape(-1) % space


def _load(state: Any, shape: tuple[int, int, int], base: int, layout: SimpleNamespace) -> F32:
    addresses = element_addresses(shape, base, layout, state.scratch.size)
    if layout.dtype == 0:
        value = formats.bf16_bits_to_f32(state.scratch.view(np.uint16)[addresses // 2])
    elif layout.dtype == 1:
        value = state.scratch.view(np.float32)[addresses // 4]
    else:
        value = state.scratch.view(np.int32)[addresses // 4].astype(np.float32)
    if layout.rotate:
        negative = np.tile(np.arange(shape[2]) < shape[2] // 2, shape[0] * shape[1])
        value = np.where(negative, -value, value)
    return np.asarray(value, dtype=np.float32)


def _scalar(state: Any, kind: int, value: int) -> F32:
    if kind == 0:
        return np.array(value, dtype=np.uint32).view(np.float32)
    if kind == 2:
        return np.array(state.registers[value], dtype=np.int32).astype(np.float32)
    word = np.array(state.shared[value], dtype=np.int32)
    return word.view(np.float32) if kind == 1 else word.astype(np.float32)


def _store(state: Any, shape: tuple[int, int, int], value: F32, result: SimpleNamespace) -> None:
    layout, mask = result.layout, result.broadcast.channels
    addresses = element_addresses(shape, result.base, layout, state.scratch.size)
    if layout.dtype == 0:
        data, scratch, size = formats.f32_to_bf16_bits(value), state.scratch.view(np.uint16), 2
    elif layout.dtype == 1:
        data, scratch, size = np.where(np.isnan(value), np.float32(np.nan), value).astype(np.float32), state.scratch.view(np.float32), 4
    else:
        raise ValueError("a pass stores bf16 or f32")
    if not mask:
        scratch[addresses // size] = data
        return
    offsets = addresses % state.scratch_bytes
    for channel in range(state.channels):
        if mask >> channel & 1:
            scratch[(offsets + channel * state.scratch_bytes) // size] = data


def _pass(state: Any, o: SimpleNamespace) -> None:
    shape = (max(o.n0, 0), max(o.n1, 0), max(o.n2, 0))
    n = shape[0] * shape[1] * shape[2]
    index = np.arange(n)
    valid = (index >= o.low) & (index < o.high)
    values: dict[int, F32] = {}
    for slot, operand in enumerate(o.operands):
        values[slot] = _load(state, shape, operand.base, operand.layout)
    for slot, scalar in enumerate(o.scalars):
        values[FIRST_SCALAR + slot] = np.broadcast_to(_scalar(state, scalar.scalar.kind, scalar.scalar.value), (n,))
    with np.errstate(all="ignore"):
        for slot, entry in enumerate(o.operations):
            op = OP_BY_CODE[entry.operation.op]
            sources = (entry.operation.a, entry.operation.b, entry.operation.c)[: op.arity]
            values[FIRST_RESULT + slot] = np.asarray(op.function(*(values[s] for s in sources)), dtype=np.float32)
        for result in o.result:
            _store(state, shape, np.where(valid, values[result.broadcast.value], np.float32(0)), result)
    for entry in o.reductions:
        source = values[entry.reduction.value]
        if entry.reduction.kind == 2:
            word = np.array(vf.reduce_argmax(source, valid), dtype=np.int32)
        else:
            word = np.asarray((vf.reduce_sum, vf.reduce_max)[entry.reduction.kind](source, valid), dtype=np.float32)
            word = np.where(np.isnan(word), np.float32(np.nan), word).astype(np.float32).view(np.int32)
        state.shared[entry.reduction.shared] = word


VECTOR_COMMANDS = (
    Instruction(
        "VPASS",
        64,
        (Engine.VECTOR,),
        "vector",
        "One pass. Elements whose flat index is below `low` or not below `high` are masked: skipped by reductions, stored as +0. `sum`: lane i mod 16 "
        "accumulates in ascending order from +0, then the tree i+8, i+4, i+2, i+1; `max` propagates NaN (nothing valid: -inf); `argmax` is the lowest index of "
        "the maximum (nothing valid: 0). A reduction writes its 32-bit word to a shared register at the end of the pass.",
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
                            Bits("kind", 2, "source", names=SCALAR_KINDS),
                            Bits("value", 32, "float32 bits, or the register number"),
                        ),
                        "scalar",
                    ),
                ),
                "scalars, values 4-11",
            ),
            Group(
                "operations",
                "n_operations",
                (
                    PackedWord(
                        "operation",
                        (
                            Bits("op", 8, "operation", names=tuple(op.name for op in VECTOR_OPS)),
                            Bits("a", 6, "first value"),
                            Bits("b", 6, "second value"),
                            Bits("c", 6, "third value"),
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
                            Bits("channels", 32, "channel mask: the result goes to its offset in each channel named; 0: to its linear address"),
                            Bits("value", 6, "value stored"),
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
                            Bits("kind", 2, "reduction", names=REDUCTIONS),
                            Bits("value", 6, "value reduced"),
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
