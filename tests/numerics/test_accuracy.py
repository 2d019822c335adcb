"""Errors of the vector functions stay within ``vector_unit.ulp`` of the machine."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from tests.numerics.twin import Twin, variants
from wordline.machines import load_machine
from wordline.machines.schema import FUNCTIONS
from wordline.numerics import vector
from wordline.numerics.formats import from_bits

BOUNDS = load_machine("gddr6-aim-chip").vector_unit.ulp
_EXACT = {
    "exp": mpmath.exp,
    "recip": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "tanh": mpmath.tanh,
    "sin": mpmath.sin,
    "cos": mpmath.cos,
}


@pytest.fixture(scope="module")
def fastest(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    """The twin for the best instruction set here; all variants give the same bits (test_twin)."""
    return Twin(variants()[-1], tmp_path_factory.mktemp("accuracy"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_arbitrary_precision(name: str) -> None:
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.uniform(-100, 88, 400), rng.normal(size=400), 10.0 ** rng.uniform(-38, 38, 400)])
    x = x.astype(np.float32)
    if name == "rsqrt":
        x = np.abs(x)
    if name == "exp":
        x = x[x < 88]
    worst = 0.0
    with mpmath.workprec(300):
        for argument, result in zip(x, getattr(vector, name)(x), strict=True):
            exact = _EXACT[name](mpmath.mpf(float(argument)))
            ulp = mpmath.mpf(2) ** (max(mpmath.frexp(exact)[1] - 1, -126) - 23)
            worst = max(worst, float(abs(mpmath.mpf(float(result)) - exact) / ulp))
    assert worst <= BOUNDS[name]


# The float32 that comes closest to a multiple of pi/2, and other arguments that need many bits of 2/pi.
@pytest.mark.parametrize("bits", [0x6F79BE45, 0x7F7FFFFF, 0x5922AA80, 0x47CBE2B0, 0x3FC90FDB, 0x4B7FFFFF])
def test_angles_near_multiples_of_a_quarter_turn(bits: int) -> None:
    x = from_bits(np.uint32(bits))[()]
    with mpmath.workprec(400):
        for name in ("sin", "cos"):
            exact = _EXACT[name](mpmath.mpf(float(x)))
            ulp = mpmath.mpf(2) ** (mpmath.frexp(exact)[1] - 24)
            error = abs(mpmath.mpf(float(getattr(vector, name)(x))) - exact) / ulp
            assert float(error) <= BOUNDS[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sampled(name: str, fastest: Twin) -> None:
    # 64 arguments in a row from each of 2^14 places over all bit patterns.
    for first in range(0, 1 << 32, 1 << 18):
        error, where = fastest.worst(name, first + (first >> 14) % 65521, first + (first >> 14) % 65521 + 63)
        assert error <= BOUNDS[name], hex(where)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", FUNCTIONS)
def test_exhaustive(name: str, fastest: Twin, record_property: Callable[[str, object], None]) -> None:
    error, where = fastest.worst(name, 0, (1 << 32) - 1)
    record_property("ulp", f"{error} at {where:#x}")
    assert error <= BOUNDS[name], hex(where)
    assert error > BOUNDS[name] - 0.011, "the stated bound is looser than it needs to be"
