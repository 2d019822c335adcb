"""Number formats: bf16 as the upper half of fp32, rounding to nearest even, one canonical NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]

#: The bits of every NaN that the device stores.
CANONICAL_NAN_F32 = np.uint32(0x7FC00000)
CANONICAL_NAN_BF16 = np.uint16(0x7FC0)


def as_bits(x: npt.ArrayLike) -> U32:
    """The bits of float32 values, same shape."""
    return np.ascontiguousarray(x, dtype=np.float32).view(np.uint32).reshape(np.shape(x))


def from_bits(bits: npt.ArrayLike) -> F32:
    """float32 values of the given bits (uint32), same shape."""
    return np.ascontiguousarray(bits, dtype=np.uint32).view(np.float32).reshape(np.shape(bits))


def canonical(x: npt.ArrayLike) -> F32:
    """``x`` (float32) with every NaN replaced by 0x7FC00000; every result that a pass stores goes through this."""
    values = np.asarray(x, dtype=np.float32)
    return np.where(np.isnan(values), from_bits(CANONICAL_NAN_F32), values)


def f32_to_bf16_bits(x: npt.ArrayLike) -> U16:
    """Round float32 to bf16, to nearest even; any NaN becomes 0x7FC0. Returns uint16 of the same shape."""
    bits = as_bits(x)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    # Never wraps: the largest non-NaN pattern is 0xFF800000. NaN patterns may wrap and are replaced.
    rounded: U16 = ((bits + (np.uint32(0x7FFF) + odd)) >> np.uint32(16)).astype(np.uint16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, CANONICAL_NAN_BF16, rounded)


def bf16_bits_to_f32(bits: npt.ArrayLike) -> F32:
    """Widen bf16 bits (uint16) to float32, exactly; NaN patterns keep their bits."""
    wide: npt.NDArray[Any] = np.asarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)
    return from_bits(wide)


def round_bf16(x: npt.ArrayLike) -> F32:
    """float32 rounded to the nearest bf16 value, as float32."""
    return bf16_bits_to_f32(f32_to_bf16_bits(x))
