"""Fixtures: the compiled native twin, and random and special float32 values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.twin import Twin, variants

_SPECIAL_BITS = [
    0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000,
    0x33000000, 0x33800000, 0x3EFFFFFF, 0x3F000000, 0x3F000001, 0x3F0FFFFF, 0x3F100000, 0x3F490FDA, 0x3F490FDB,
    0x3F490FDC, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3FC90FDB, 0x40000000, 0x40490FDB, 0x41100000, 0x42AEAC4F,
    0x42AEAC50, 0x42B17217, 0x42B17218, 0x42B20000, 0x42CFF1B4, 0x42CFF1B5, 0x42D00000, 0x4B000000, 0x4B7FFFFF,
    0x4B800000, 0x7E7FFFFF, 0x7E800000, 0x7E800001, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
    0x7FFFFFFF,
]  # fmt: skip


@pytest.fixture(scope="session", params=variants())
def twin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twin:
    """The native twin, once for each instruction set of this processor."""
    return Twin(request.param, tmp_path_factory.mktemp("twin"))


@pytest.fixture(scope="session")
def special() -> np.ndarray:
    """Zeros, subnormals, limits of the functions, infinities and NaN of both signs, float32."""
    bits = np.array(_SPECIAL_BITS, dtype=np.uint32)
    return np.concatenate([bits, bits | np.uint32(0x80000000)]).view(np.float32)


@pytest.fixture(scope="session")
def values(special: np.ndarray) -> np.ndarray:
    """A million and a half float32: all patterns alike, the busy ranges of the functions, and the special ones."""
    rng = np.random.default_rng(20)
    patterns = rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32)
    busy = np.concatenate([rng.uniform(-110, 110, 1 << 18), rng.normal(0, 1, 1 << 18)]).astype(np.float32)
    return np.concatenate([patterns, busy, special])
