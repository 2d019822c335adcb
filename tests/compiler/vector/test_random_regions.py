"""Random regions: the generated passes give bit for bit what the operations give one by one."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.vector_regions import Region
from wordline.compiler.kernel.scratch import ScratchTensor, broadcast, contiguous, sharded
from wordline.graph.ir import Value
from wordline.machines import Machine, load_machine

MACHINES = {c: load_machine("gddr6-aim-chip", {"organisation.channels": c}) for c in (1, 2, 32)}
SHAPES = ((24,), (4, 6), (2, 3, 4), (1, 2, 32), (5, 7), (1, 96), (3, 16, 2), (40,), (1, 1, 1), (33,), (2, 1, 16))
UNARY = ("neg", "exp", "recip", "rsqrt", "sigmoid", "tanh", "sin", "cos")
BINARY = ("add", "sub", "mul", "maximum")
VIEWS = ("reshape", "transpose", "slice", "broadcast", "concat", "rotate", "cast")
KINDS = ("unary", "binary", "binary", "binary", "select", "scalar", "reduce", *VIEWS)


def _tensor(draw: st.DrawFn, machine: Machine, name: str, elements: int) -> ScratchTensor:
    kind = draw(st.sampled_from(("contiguous", "broadcast", "sharded", "sharded f32", "bf16")))
    if kind == "sharded":
        return sharded(name, machine, elements)
    if kind == "sharded f32":
        return sharded(name, machine, elements, "f32")
    if kind == "bf16":
        return contiguous(name, "bf16", elements)
    return (contiguous if kind == "contiguous" else broadcast)(name, "f32", elements)


def _target(draw: st.DrawFn, machine: Machine, name: str, elements: int) -> ScratchTensor:
    kind = draw(st.sampled_from(("contiguous", "padded", "broadcast", "sharded")))
    if kind == "sharded":
        return sharded(name, machine, elements, draw(st.sampled_from(("f32", "bf16"))))
    if kind == "broadcast":
        return broadcast(name, "bf16", elements, pad_to=16)
    return contiguous(name, "f32", elements, pad_to=16 if kind == "padded" else 1)


def _factors(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    shape = []
    for _ in range(draw(st.integers(0, 2))):
        divisor = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        shape.append(divisor)
        size //= divisor
    return (*shape, size)


def _compatible(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def _static(value: Value) -> tuple[int, ...]:
    return value.type.concrete_shape({})


def _grow(draw: st.DrawFn, region: Region, values: list[Value]) -> Value:
    """One more operation on values already there."""
    b = region.builder
    x = draw(st.sampled_from(values))
    shape = _static(x)
    kind = draw(st.sampled_from(KINDS))
    others = [v for v in values if _compatible(shape, _static(v))]
    if kind == "unary":
        return b.op(draw(st.sampled_from(UNARY)), x)
    if kind == "binary":
        return b.op(draw(st.sampled_from(BINARY)), x, draw(st.sampled_from(others)))
    if kind == "select":
        y = draw(st.sampled_from(others))
        return b.op("select", b.op("less", x, y), x, y)
    if kind == "scalar":
        return b.op(
            draw(st.sampled_from(BINARY)), x, b.scalar(draw(st.sampled_from((0.0, -0.0, 0.5, -3.25))), x.type.dtype)
        )
    if kind == "reduce":
        return b.op(draw(st.sampled_from(("reduce_sum", "reduce_max"))), x)
    if kind == "reshape":
        return b.op("reshape", x, shape=_factors(draw, prod(shape)))
    if kind == "transpose":
        return b.op("transpose", x, perm=tuple(draw(st.permutations(range(len(shape))))))
    if kind == "slice":
        axis = draw(st.integers(0, len(shape) - 1))
        start = draw(st.integers(0, shape[axis] - 1))
        return b.op("slice", x, axis=axis, start=start, stop=draw(st.integers(start + 1, shape[axis])))
    if kind == "broadcast":
        wide = tuple(draw(st.integers(1, 3)) if extent == 1 else extent for extent in shape)
        return b.op("broadcast", x, shape=(draw(st.integers(1, 2)), *wide))
    if kind == "concat":
        axis = draw(st.integers(0, len(shape) - 1))
        same = [v for v in values if _same_but(shape, _static(v), axis)]
        return b.op("concat", x, draw(st.sampled_from(same)), axis=axis)
    if kind == "rotate":
        return b.op("rotate_half", x) if shape[-1] % 2 == 0 else x
    return b.op("cast", b.op("cast", x, dtype="bf16"), dtype=x.type.dtype)


def _same_but(a: tuple[int, ...], b: tuple[int, ...], axis: int) -> bool:
    return len(a) == len(b) and a[:axis] + a[axis + 1 :] == b[:axis] + b[axis + 1 :]


@st.composite
def regions(draw: st.DrawFn) -> tuple[Region, list[tuple[Value, ScratchTensor]]]:
    machine = MACHINES[draw(st.sampled_from(sorted(MACHINES)))]
    region = Region(machine)
    values: list[Value] = []
    dtype = draw(st.sampled_from(("f32", "f32", "bf16")))
    base = draw(st.sampled_from(SHAPES))
    for at in range(draw(st.integers(1, 6))):
        shape = base if draw(st.booleans()) else draw(st.sampled_from((*SHAPES, base[-1:])))
        values.append(region.tensor(f"x{at}", shape, _tensor(draw, machine, f"x{at}", prod(shape)), dtype))
    for _ in range(draw(st.integers(1, 14))):
        value = _grow(draw, region, values)
        if prod(_static(value)) <= 512:
            values.append(value)
    outputs = []
    for at in range(draw(st.integers(1, 3))):
        # Late values first: they are the deep expressions.
        value = values[-1 - draw(st.integers(0, min(3, len(values) - 1)))]
        outputs.append((value, _target(draw, machine, f"out{at}", prod(_static(value)))))
    return region, outputs


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(regions())
def test_random_region_is_bit_exact(case: tuple[Region, list[tuple[Value, ScratchTensor]]]) -> None:
    region, outputs = case
    region.check_exact(outputs)


def test_exactness_sees_one_bit() -> None:
    a: NDArray[np.float32] = np.array([1.0, np.nan, -0.0], np.float32)
    assert Region.same(a, a.copy())
    assert not Region.same(a, np.array([1.0, np.nan, 0.0], np.float32))
