"""fp16 arithmetic against exact numbers rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import plain_blocks
from wordline.numerics import fp16

EVERY = np.arange(1 << 16, dtype=np.uint16)


def exact(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """float64 holds every product and every sum of two fp16 values exactly, so one rounding is left."""
    with np.errstate(all="ignore"):
        x, y = a.view(np.float16).astype(np.float64), b.view(np.float16).astype(np.float64)
        result = (x * y if op == "mul" else x + y).astype(np.float16).view(np.uint16)
    return np.where((result & 0x7FFF) > 0x7C00, 0x7E00, result)


@pytest.mark.parametrize("op", ["add", "mul"])
def test_every_value_with_special_and_random_ones(op: str) -> None:
    rng = np.random.default_rng(4)
    special = [
        0,
        0x8000,
        1,
        0x8001,
        0x3FF,
        0x400,
        0x3C00,
        0xBC00,
        0x7BFF,
        0x7C00,
        0xFC00,
        0x7E00,
        0x7C01,
        0x1400,
        0x3555,
    ]
    for other in [*special, *rng.integers(0, 1 << 16, 40).tolist()]:
        b = np.full_like(EVERY, other)
        assert np.array_equal(getattr(fp16, op)(EVERY, b), exact(op, EVERY, b)), hex(other)


@pytest.mark.exhaustive
@pytest.mark.parametrize("op", ["add", "mul"])
def test_every_pair(op: str) -> None:
    for other in range(1 << 16):
        b = np.full_like(EVERY, other)
        assert np.array_equal(getattr(fp16, op)(EVERY, b), exact(op, EVERY, b)), hex(other)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 65535), st.integers(0, 65535))
def test_against_fractions(a: int, b: int) -> None:
    x, y = (float(fp16.to_float(np.array([v], np.uint16))[0]) for v in (a, b))
    for ours, plain in ((fp16.add, plain_blocks.add), (fp16.mul, plain_blocks.mul)):
        want = fp16.from_float(np.array([plain(x, y)]))
        assert ours(np.array([a], np.uint16), np.array([b], np.uint16)) == want


def test_relu() -> None:
    values = np.array([0x3C00, 0xBC00, 0x8000, 0, 0x7C00, 0xFC00, 0x7C01, 0xFE00], dtype=np.uint16)
    assert fp16.relu(values).tolist() == [0x3C00, 0, 0, 0, 0x7C00, 0, 0x7E00, 0x7E00]


def test_a_product_and_a_sum_are_rounded_each() -> None:
    # (1 + 2^-10)^2 - 1 = 2^-9 + 2^-20; the product rounded first loses the last term.
    x = fp16.from_float(np.array([1 + 2**-10]))
    assert fp16.to_float(fp16.add(fp16.mul(x, x), fp16.from_float(np.array([-1.0])))) == 2**-9
