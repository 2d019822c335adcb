"""The vector unit's functions: single rounding, special values, reductions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordline.numerics import vector
from wordline.numerics.formats import as_bits, from_bits

INF, NAN = np.float32(np.inf), np.float32(np.nan)
CANONICAL = 0x7FC00000
bits32 = st.integers(0, 0xFFFFFFFF)


def round_to_f32(value: Fraction) -> float:
    """The exact value rounded once to float32, nearest even, subnormals kept; written from the definition."""
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    step = Fraction(2) ** (max(exponent, -126) - 23)
    rounded = round(magnitude / step) * step  # round() of a Fraction is to nearest even
    if rounded >= Fraction(2) ** 128:
        return float("inf") if value > 0 else float("-inf")
    return float(rounded if value > 0 else -rounded)


def check_fma(a: np.float32, b: np.float32, c: np.float32) -> None:
    result = vector.fma(a, b, c)
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        with np.errstate(all="ignore"):
            expected = np.float64(a) * np.float64(b) + np.float64(c)
        assert np.array_equal(np.float64(result), expected, equal_nan=True)
        return
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    assert float(result) == round_to_f32(exact)


@settings(deadline=None)
@given(bits32, bits32, bits32)
def test_fma_of_any_bits_is_rounded_once(a: int, b: int, c: int) -> None:
    check_fma(*from_bits(np.array([a, b, c], np.uint32)))


@settings(deadline=None)
@given(bits32, st.integers(-30, 30), st.integers(-3, 3), st.booleans())
def test_fma_is_rounded_once_where_operands_nearly_cancel(a: int, scale: int, nudge: int, negative: bool) -> None:
    # c close to -a * b, or to half a unit of it: the cases where rounding twice shows.
    x = from_bits(np.uint32((a & 0x007FFFFF) | 0x3F800000))[()]
    y = from_bits(np.uint32(((a >> 7) & 0x007FFFFF) | 0x3F800000))[()]
    c = from_bits(np.uint32(int(as_bits(x * y * np.float32(2.0**scale))) + nudge))[()]
    check_fma(x, y, -c if negative else c)


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        (1.0 + 2**-23, 1.0 + 2**-23, 2.0**-149),  # the last bit decides the tie of the product
        (1.0 + 2**-12, 1.0 + 2**-12, 2.0**-149),
        (1.0 + 2**-12, 1.0 + 2**-12, -(2.0**-149)),
        (2.0**-75, 2.0**-75, 2.0**-149),  # half of the least subnormal
        (2.0**-75, 2.0**-75, 3 * 2.0**-149),
        (1.5 * 2.0**-75, 2.0**-75, 2.0**-149),
        (2.0**-100, 2.0**-100, 2.0**-149),
        (2.0**-100, -(2.0**-100), 2.0**-149),
        (2.0**127, 2.0, -(2.0**104)),  # back from the edge of overflow
        (2.0**127, 2.0, -(2.0**102)),
        (2.0**64, 2.0**64, -(2.0**127)),
        (3.0, 5.0, -15.0),
    ],
)
def test_fma_hard_cases(a: float, b: float, c: float) -> None:
    check_fma(np.float32(a), np.float32(b), np.float32(c))


def test_fma_signs_of_zero() -> None:
    assert not np.signbit(vector.fma(3.0, 5.0, -15.0))
    assert np.signbit(vector.fma(-0.0, 1.0, -0.0))
    assert not np.signbit(vector.fma(-0.0, 1.0, 0.0))
    assert np.signbit(vector.fma(-(2.0**-100), 2.0**-100, -0.0))  # underflows towards -0


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("exp", [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (89.0, INF), (-104.0, 0.0), (-103.9, 2.0**-149)]),
        ("recip", [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, -0.0), (2.0**-149, INF), (2.0**127, 2.0**-127)]),
        ("rsqrt", [(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (-INF, NAN), (4.0, 0.5), (2.0**-148, 2.0**74)]),
        ("sigmoid", [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (100.0, 1.0), (-104.0, 0.0)]),
        ("tanh", [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (20.0, 1.0), (2.0**-149, 2.0**-149)]),
        ("sin", [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (2.0**-149, 2.0**-149)]),
        ("cos", [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (2.0**-149, 1.0)]),
    ],
)
def test_special_values(name: str, cases: list[tuple[float, float]]) -> None:
    function = getattr(vector, name)
    arguments, expected = np.array([*cases, (NAN, NAN)], np.float32).T
    result = function(arguments)
    assert as_bits(result).tolist() == as_bits(expected).tolist()
    for argument, bits in zip(arguments, as_bits(result), strict=True):
        assert as_bits(function(argument)) == bits  # a scalar is as an element


@pytest.mark.parametrize("name", ["exp", "recip", "rsqrt", "sigmoid", "tanh", "sin", "cos"])
def test_results_are_canonical_and_keep_the_shape(name: str, special: np.ndarray) -> None:
    function = getattr(vector, name)
    result = function(special.reshape(4, -1))
    assert result.shape == (4, special.size // 4)
    assert result.dtype == np.float32
    assert (as_bits(result)[np.isnan(result)] == CANONICAL).all()
    assert np.isnan(result.reshape(-1)[np.isnan(special)]).all()
    assert function(np.zeros((0, 3), np.float32)).shape == (0, 3)


@pytest.mark.parametrize(
    ("name", "sign"), [("recip", -1), ("tanh", -1), ("sin", -1), ("cos", 1)], ids=["recip", "tanh", "sin", "cos"]
)
def test_symmetry(name: str, sign: int, values: np.ndarray) -> None:
    x = values[:: 1 << 4]
    x = x[~np.isnan(x)]
    result, mirrored = getattr(vector, name)(x), getattr(vector, name)(-x)
    number = ~np.isnan(result)
    assert np.array_equal(as_bits(result)[number], as_bits(sign * mirrored)[number])
    assert np.isnan(mirrored[~number]).all()


def test_maximum_less_select() -> None:
    a = np.array([1, 2, -0.0, 0.0, -0.0, NAN, 1, INF, -INF], np.float32)
    b = np.array([2, 1, 0.0, -0.0, -0.0, 1, NAN, 1, 1], np.float32)
    largest = np.array([2, 2, 0.0, 0.0, -0.0, NAN, NAN, INF, 1], np.float32)
    assert as_bits(vector.maximum(a, b)).tolist() == as_bits(largest).tolist()
    assert vector.less(a, b).tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 1]
    c = np.array([1, 0.0, -0.0, NAN, 2.0**-149], np.float32)
    assert vector.select(c, np.float32(7), np.float32(8)).tolist() == [7, 8, 8, 7, 7]


def scalar_sum(x: np.ndarray, mask: np.ndarray) -> np.float32:
    """The definition, one addition at a time."""
    strands = [np.float32(0)] * 16
    for i, (value, keep) in enumerate(zip(x, mask, strict=True)):
        if keep:
            strands[i % 16] = strands[i % 16] + value
    for width in (8, 4, 2, 1):
        strands = [strands[i] + strands[i + width] for i in range(width)]
    return strands[0]


@settings(deadline=None)
@given(st.integers(0, 70), st.integers(0, 1 << 30), st.booleans())
def test_sums_follow_the_definition(count: int, seed: int, masked: bool) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=count) * 10.0 ** rng.integers(-6, 6, count)).astype(np.float32)
    mask = rng.random(count) < 0.5 if masked else np.ones(count, bool)
    result = vector.reduce_sum(x, mask if masked else None)
    assert as_bits(result) == as_bits(scalar_sum(x, mask))
    stacked = vector.reduce_sum(np.stack([x, -x]), mask)
    assert stacked.shape == (2,)
    assert stacked[0] == result


def test_sums_of_specials() -> None:
    assert as_bits(vector.reduce_sum(np.array([], np.float32))) == 0
    assert as_bits(vector.reduce_sum(np.array([-0.0], np.float32))) == 0  # strands start from +0
    assert as_bits(vector.reduce_sum(np.array([INF, -INF]))) == CANONICAL
    assert vector.reduce_sum(np.array([NAN, 1.0]), np.array([False, True])) == 1.0


def test_maximum_of_a_vector() -> None:
    assert vector.reduce_max(np.zeros((2, 0), np.float32)).tolist() == [-np.inf, -np.inf]
    assert as_bits(vector.reduce_max(np.array([-0.0, 0.0, -1.0], np.float32))) == 0
    assert as_bits(vector.reduce_max(np.array([-0.0, -1.0], np.float32))) == 0x80000000
    assert as_bits(vector.reduce_max(np.array([3.0, NAN, 5.0], np.float32))) == CANONICAL
    assert vector.reduce_max(np.array([NAN, 5.0]), np.array([False, True])) == 5.0
    assert vector.reduce_max(np.array([4.0, 5.0]), np.array([False, False])) == -np.inf


@pytest.mark.parametrize(
    ("x", "mask", "index"),
    [
        ([], None, 0),
        ([1, 3, 3, 2], None, 1),
        ([-0.0, 0.0], None, 0),
        ([1, NAN, INF, NAN], None, 1),
        ([INF, 1], [False, True], 1),
        ([1, -INF], [False, True], 1),
        ([NAN, 2, 1], [False, True, True], 1),
        ([5, 6], [False, False], 0),
    ],
)
def test_place_of_the_maximum(x: list[float], mask: list[bool] | None, index: int) -> None:
    keep = None if mask is None else np.array(mask)
    found = vector.reduce_argmax(np.array(x, np.float32), keep)
    assert found == index
    assert found.dtype == np.int32
    assert vector.reduce_argmax(np.array([x, x], np.float32), keep).tolist() == [index, index]
