"""bf16 and the bank unit."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wordline.numerics.formats import (
    as_bits,
    bf16_bits_to_f32,
    canonical,
    f32_to_bf16_bits,
    from_bits,
    round_bf16,
)
from wordline.numerics.mac import mac_column, mac_columns, readout_bf16, tree_sum


def test_every_bf16_survives_the_round_trip() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    wide = bf16_bits_to_f32(bits)
    assert np.array_equal(as_bits(wide), bits.astype(np.uint32) << 16)
    nan = np.isnan(wide)
    assert np.array_equal(f32_to_bf16_bits(wide)[~nan], bits[~nan])
    assert (f32_to_bf16_bits(wide)[nan] == 0x7FC0).all()


def test_bf16_rounding_agrees_with_ml_dtypes(values: np.ndarray) -> None:
    finite = values[~np.isnan(values)]
    expected = finite.astype(ml_dtypes.bfloat16).view(np.uint16)
    assert np.array_equal(f32_to_bf16_bits(finite), expected)


def test_bf16_ties_go_to_even() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x7F7F8000, 0x00008000, 0x00018000], np.uint32)
    assert f32_to_bf16_bits(from_bits(bits)).tolist() == [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x7F80, 0, 2]
    assert round_bf16(np.float32(1.00390625)) == np.float32(1.0)


def test_shapes_are_kept() -> None:
    for shape in [(), (1,), (3, 4), (0,)]:
        x = np.zeros(shape, np.float32)
        assert f32_to_bf16_bits(x).shape == shape
        assert round_bf16(x).shape == canonical(x).shape == as_bits(x).shape == shape


def test_nan_is_canonical(special: np.ndarray) -> None:
    result = canonical(special)
    assert (as_bits(result)[np.isnan(special)] == 0x7FC00000).all()
    assert np.array_equal(as_bits(result)[~np.isnan(special)], as_bits(special)[~np.isnan(special)])


def nearest_f32(value: Fraction) -> np.float32:
    """The float32 nearest to an exact value, ties to even, by comparing neighbours."""
    guess = np.float32(float(value))  # within one step of the answer
    candidates = [guess, np.nextafter(guess, np.float32(-np.inf)), np.nextafter(guess, np.float32(np.inf))]
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - value), int(as_bits(c)) & 1))


@settings(deadline=None)
@given(st.lists(st.integers(0, 0xFFFF), min_size=33, max_size=33))
def test_a_column_is_the_stated_sequence_of_roundings(patterns: list[int]) -> None:
    bits = np.array(patterns, np.uint16)
    bits = np.where((bits & 0x7F80) > 0x4B00, bits & 0xBFFF, bits).astype(np.uint16)  # finite, no overflow
    w, x, acc = bits[:16], bits[16:32], bf16_bits_to_f32(bits[32])
    exact = [Fraction(float(a)) * Fraction(float(b)) for a, b in zip(*map(bf16_bits_to_f32, (w, x)), strict=True)]
    lanes = [nearest_f32(product) for product in exact]
    for width in (8, 4, 2, 1):
        lanes = [nearest_f32(Fraction(float(lanes[i])) + Fraction(float(lanes[i + width]))) for i in range(width)]
    expected = nearest_f32(Fraction(float(acc)) + Fraction(float(lanes[0])))
    assert mac_column(acc, w, x) == expected


def test_the_order_of_the_tree() -> None:
    lanes = np.zeros(16, np.float32)
    lanes[0], lanes[8], lanes[1] = 1e8, -1e8, 1.0  # 0 and 8 cancel first, so the 1 is not lost
    assert tree_sum(lanes) == 1.0
    lanes = np.zeros(16, np.float32)
    lanes[0], lanes[1], lanes[9] = 1e8, 1.0, -1e8  # 1 and 9 meet first: the 1 is lost
    assert tree_sum(lanes) == 0.0
    with pytest.raises(ValueError, match="power of two"):
        tree_sum(np.zeros(12, np.float32))


def test_the_accumulator_comes_last() -> None:
    one, big = np.full(16, 0x3F80, np.uint16), np.float32(2.0**24)
    assert mac_column(big, one, one) == 2.0**24 + 16  # sixteen single additions of 1 would all be lost


def test_a_burst_equals_its_columns() -> None:
    rng = np.random.default_rng(5)
    w, x = (f32_to_bf16_bits(rng.normal(size=(16, 7, 16)).astype(np.float32)) for _ in range(2))
    acc = rng.normal(size=16).astype(np.float32)
    expected = acc
    for column in range(7):
        expected = mac_column(expected, w[:, column], x[0, column])
    assert np.array_equal(mac_columns(acc, w, x[0]), expected)


def test_subnormals_zeros_and_specials_follow_ieee() -> None:
    tiny = np.zeros(16, np.uint16)
    tiny[3] = 0x0001  # 2^-133
    one = np.full(16, 0x3F80, np.uint16)
    assert mac_column(np.float32(0), tiny, one) == np.float32(2.0**-133)
    negative = np.full(16, 0x8000, np.uint16)
    assert np.signbit(mac_column(np.float32(-0.0), negative, one))
    assert not np.signbit(mac_column(np.float32(0.0), negative, one))
    inf = np.full(16, 0x7F80, np.uint16)
    assert mac_column(np.float32(0), inf, one) == np.inf
    assert readout_bf16(mac_column(np.float32(0), inf, np.zeros(16, np.uint16))) == 0x7FC0
    assert readout_bf16(np.float32(1.0)) == 0x3F80
