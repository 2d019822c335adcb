"""The multiply-accumulate unit of a bank (``bank_unit.mac_sum = "fp32_tree"``)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wordline.numerics.formats import F32, U16, bf16_bits_to_f32, f32_to_bf16_bits


def tree_sum(lanes: F32) -> F32:
    """Sum over the last axis (a power of two of n lanes) in the fixed tree: i and i + n/2, then i + n/4, ..., i + 1.

    With 16 lanes: i and i + 8, then i + 4, i + 2, i + 1. Every addition is rounded to float32.
    """
    width = lanes.shape[-1]
    if width & (width - 1):
        raise ValueError(f"the tree needs a power of two of lanes, not {width}")
    with np.errstate(all="ignore"):
        while width > 1:
            width //= 2
            lanes = lanes[..., :width] + lanes[..., width:]
    return lanes[..., 0]


def mac_column(acc: npt.ArrayLike, w_bits: npt.ArrayLike, x_bits: npt.ArrayLike) -> F32:
    """One column: acc + tree_sum(w * x).

    Args:
        acc: float32 [...], the accumulators.
        w_bits: bf16 bits, uint16 [..., lanes], the column of each bank.
        x_bits: bf16 bits, uint16 [..., lanes], the buffer column; shapes broadcast.

    Products, the additions of the tree and the accumulation are rounded to float32 to nearest even; subnormals are
    kept. The bits of a NaN in an accumulator are not defined: read-out makes them canonical.
    """
    with np.errstate(all="ignore"):
        products = bf16_bits_to_f32(w_bits) * bf16_bits_to_f32(x_bits)
        return np.asarray(np.asarray(acc, dtype=np.float32) + tree_sum(products), dtype=np.float32)


def mac_columns(acc: npt.ArrayLike, w_bits: npt.ArrayLike, x_bits: npt.ArrayLike) -> F32:
    """A burst: :func:`mac_column` over the columns of w_bits and x_bits [..., columns, lanes] in ascending order."""
    with np.errstate(all="ignore"):
        sums = tree_sum(bf16_bits_to_f32(w_bits) * bf16_bits_to_f32(x_bits))
        total = np.asarray(acc, dtype=np.float32)
        for column in range(sums.shape[-1]):
            total = total + sums[..., column]
    return np.asarray(total, dtype=np.float32)


def readout_bf16(acc: npt.ArrayLike) -> U16:
    """Accumulators (float32) as read out: bf16 bits, rounded to nearest even, any NaN 0x7FC0."""
    return f32_to_bf16_bits(acc)
