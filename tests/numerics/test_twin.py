"""The native twin gives the bits of the NumPy definition, on every instruction set of this processor."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.twin import BINARY, TERNARY, UNARY, Twin
from wordline.numerics import formats, vector
from wordline.numerics.formats import as_bits, canonical


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    different = np.flatnonzero(as_bits(a) != as_bits(b))
    assert different.size == 0, f"{different.size} differ, the first at {different[0]}"


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one(name: str, twin: Twin, values: np.ndarray) -> None:
    reference = getattr(vector, name, None) or getattr(formats, name)
    same_bits(twin.elementwise(name, values), reference(values))


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name: str, twin: Twin, values: np.ndarray, special: np.ndarray) -> None:
    pairs = np.stack(np.meshgrid(special, special), -1).reshape(-1, 2)
    a = np.concatenate([values, pairs[:, 0]])
    b = np.concatenate([np.roll(values, 1), pairs[:, 1]])
    same_bits(twin.elementwise(name, a, b), getattr(vector, name)(a, b))


@pytest.mark.parametrize("name", TERNARY)
def test_functions_of_three(name: str, twin: Twin, values: np.ndarray, special: np.ndarray) -> None:
    rng = np.random.default_rng(3)
    triples = rng.choice(special, size=(3, 1 << 18))
    near = rng.normal(size=(2, 1 << 19)).astype(np.float32)
    cancel = -near[0] * near[1] * (1 + rng.integers(-2, 3, 1 << 19).astype(np.float32) * np.float32(2.0**-23))
    a = np.concatenate([values, triples[0], near[0]])
    b = np.concatenate([np.roll(values, 1), triples[1], near[1]])
    c = np.concatenate([np.roll(values, 2), triples[2], cancel])
    # The bits of a NaN operand or result are made canonical when a pass stores.
    same_bits(canonical(twin.elementwise(name, a, b, c)), canonical(getattr(vector, name)(a, b, c)))


@pytest.mark.parametrize("name", ["reduce_sum", "reduce_max", "reduce_argmax"])
def test_reductions(name: str, twin: Twin, special: np.ndarray) -> None:
    rng = np.random.default_rng(4)
    for count in [0, 1, 15, 16, 17, 31, 64, 100, 1000]:
        for kind in range(6):
            x = rng.normal(size=count).astype(np.float32)
            if kind >= 4:
                x = rng.choice(special[~np.isnan(special)] if kind == 4 else special, size=count)
            mask = rng.random(count) < (0.0, 0.5, 0.9)[kind % 3] if kind % 2 else None
            expected = getattr(vector, name)(x, mask)
            found = twin.reduce(name, x, mask)
            if name == "reduce_argmax":
                assert found == expected
            else:
                assert as_bits(np.float32(found)) == as_bits(expected), (count, kind)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_over_a_grid_of_all_patterns(name: str, twin: Twin) -> None:
    reference = getattr(vector, name, None) or getattr(formats, name)
    for start in range(0, 1 << 32, 1 << 27):
        patterns = np.arange(start, start + (1 << 27), 251, dtype=np.uint32).view(np.float32)
        same_bits(twin.elementwise(name, patterns), reference(patterns))
