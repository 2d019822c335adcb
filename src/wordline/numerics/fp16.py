"""fp16 arithmetic of blocks that compute in fp16: bits in, bits out, every result rounded to nearest even.

IEEE 754 binary16: subnormals are kept, overflow gives infinity. Every NaN result is 0x7E00. A product or a sum of two
fp16 values that float32 rounds first and fp16 then is rounded as if once: 24 bits hold more than twice 11 bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U16 = npt.NDArray[np.uint16]
F16 = npt.NDArray[np.float16]

CANONICAL_NAN = np.uint16(0x7E00)


def from_float(x: npt.ArrayLike) -> U16:
    """Values rounded to fp16, as bits of the same shape."""
    with np.errstate(all="ignore"):
        return _bits(np.asarray(x, dtype=np.float32).astype(np.float16))


def to_float(bits: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Bits (uint16) as float32, exactly."""
    return _values(bits).astype(np.float32)


def add(a: npt.ArrayLike, b: npt.ArrayLike) -> U16:
    """a + b."""
    with np.errstate(all="ignore"):
        return _bits(_values(a) + _values(b))


def mul(a: npt.ArrayLike, b: npt.ArrayLike) -> U16:
    """a * b."""
    with np.errstate(all="ignore"):
        return _bits(_values(a) * _values(b))


def relu(a: npt.ArrayLike) -> U16:
    """``a`` with every value below zero, and -0, replaced by +0; NaN becomes 0x7E00."""
    bits = np.asarray(a, dtype=np.uint16)
    negative = (bits & np.uint16(0x8000)) != 0
    return np.where(_nan(bits), CANONICAL_NAN, np.where(negative, np.uint16(0), bits))


def _values(bits: npt.ArrayLike) -> F16:
    return np.ascontiguousarray(bits, dtype=np.uint16).view(np.float16).reshape(np.shape(bits))


def _bits(values: F16) -> U16:
    bits = np.ascontiguousarray(values).view(np.uint16).reshape(values.shape)
    return np.where(_nan(bits), CANONICAL_NAN, bits)


def _nan(bits: U16) -> npt.NDArray[np.bool_]:
    return (bits & np.uint16(0x7FFF)) > np.uint16(0x7C00)
