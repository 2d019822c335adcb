"""The bit-exact meaning of a vector pass (declared in :mod:`wordline.isa.controller.vector`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from wordline.isa.controller.vector import DTYPE_BYTES, DTYPES, FIRST_RESULT, FIRST_SCALAR, VECTOR_OPS
from wordline.isa.declare import OperandError
from wordline.numerics import formats, fp16
from wordline.numerics import vector as vf

F32 = npt.NDArray[np.float32]


def _resolve(path: str) -> Callable[..., F32]:
    module, name = path.rsplit(".", 1)
    function: Callable[..., F32] = getattr(importlib.import_module(module), name)
    return function


OPERATIONS = {op.code: (op.arity, _resolve(op.function)) for op in VECTOR_OPS}


def element_addresses(
    shape: tuple[int, int, int], base: int, layout: SimpleNamespace, space: int
) -> npt.NDArray[np.int64]:
    """Byte addresses [n0*n1*n2] of an operand's elements, modulo the scratch size ``space``."""
    i, j, k = (np.arange(n, dtype=np.int64) for n in shape)
    if layout.rotate:
        k = (k + shape[2] // 2) % shape[2]
    addresses = base + i[:, None, None] * layout.s0 + j[None, :, None] * layout.s1 + k[None, None, :] * layout.s2
    flat: npt.NDArray[np.int64] = addresses.reshape(-1)
    return flat % space


def _load(state: Any, shape: tuple[int, int, int], base: int, layout: SimpleNamespace) -> F32:
    addresses = element_addresses(shape, base, layout, state.scratch.size)
    match DTYPES[layout.dtype]:
        case "bf16":
            value = formats.bf16_bits_to_f32(state.scratch.view(np.uint16)[addresses // 2])
        case "f16":
            value = fp16.to_float(state.scratch.view(np.uint16)[addresses // 2])
        case "f32":
            value = state.scratch.view(np.float32)[addresses // 4]
        case _:
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
    size = DTYPE_BYTES[layout.dtype]
    data: npt.NDArray[Any]
    if DTYPES[layout.dtype] == "bf16":
        data, scratch = formats.f32_to_bf16_bits(value), state.scratch.view(np.uint16)
    elif DTYPES[layout.dtype] == "f16":
        data, scratch = fp16.from_float(value), state.scratch.view(np.uint16)
    else:
        data, scratch = formats.canonical(value), state.scratch.view(np.float32)
    # Element by element in ascending order: where addresses repeat, NumPy keeps the last one as the device does.
    if not mask:
        scratch[addresses // size] = data
        return
    offsets = addresses % state.scratch_bytes
    for channel in range(state.channels):
        if mask >> channel & 1:
            scratch[(offsets + channel * state.scratch_bytes) // size] = data


def _check(state: Any, shape: tuple[int, int, int], o: SimpleNamespace) -> None:
    if shape[0] * shape[1] * shape[2] > state.scratch.size:
        raise OperandError(f"the pass has more elements than scratch has bytes ({state.scratch.size})")
    if 0 in shape:
        return
    for what, entries in (("vector operand", o.operands), ("vector result", o.result)):
        for entry in entries:
            layout, size = entry.layout, DTYPE_BYTES[entry.layout.dtype]
            strides = (s for n, s in zip(shape, (layout.s0, layout.s1, layout.s2), strict=True) if n > 1)
            if any(value % size for value in (entry.base, *strides)):
                raise OperandError(f"{what} has an element address that is not a multiple of {size}")
            if layout.rotate and shape[2] % 2:
                raise OperandError(f"{what} rotates halves of an odd inner extent {shape[2]}")


def execute_pass(state: Any, o: SimpleNamespace) -> None:
    """Execute a pass with evaluated operands ``o`` on ``state``.

    ``state.scratch`` is uint8 [channels * scratch_bytes], ``state.shared`` int32, ``state.registers`` the local
    registers. Raises ``OperandError`` for too many elements, misaligned addresses and rotation of an odd extent.
    """
    shape = (max(o.n0, 0), max(o.n1, 0), max(o.n2, 0))
    if 0 in shape:
        shape = (0, 0, 0)
    _check(state, shape, o)
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
            arity, function = OPERATIONS[entry.operation.op]
            sources = (entry.operation.a, entry.operation.b, entry.operation.c)[:arity]
            values[FIRST_RESULT + slot] = np.asarray(function(*(values[s] for s in sources)), dtype=np.float32)
        for result in o.result:
            _store(state, shape, np.where(valid, values[result.broadcast.value], np.float32(0)), result)
    for entry in o.reductions:
        source = values[entry.reduction.value]
        if entry.reduction.kind == 2:
            word = np.array(vf.reduce_argmax(source, valid), dtype=np.int32)
        else:
            reduce = (vf.reduce_sum, vf.reduce_max)[entry.reduction.kind]
            word = formats.canonical(reduce(source, valid)).view(np.int32)
        state.shared[entry.reduction.shared] = word
