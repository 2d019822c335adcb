"""The vector unit: every function bit for bit, from IEEE float32 add, sub, mul, fma and integer operations only.

Arguments are float32 arrays (anything else is converted) and broadcast; results are float32 arrays. Functions are
branch-free: both sides of a choice are computed and one is selected, as the native twin
(native/include/wordline/vector_functions.hpp) does line by line. Error bounds are ``vector_unit.ulp`` of the machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wordline.numerics.formats import CANONICAL_NAN_F32, F32, as_bits, canonical, from_bits
from wordline.numerics.mac import tree_sum

#: Strands of a sum: element i is added to strand i mod 16. Part of the definition, whatever the width of a machine.
SUM_STRANDS = 16

_F = np.float32
_U = np.uint32
_SIGN = _U(0x80000000)
_ABS = _U(0x7FFFFFFF)
_INF = _U(0x7F800000)
_ONE = _U(0x3F800000)
_MANTISSA = _U(0x007FFFFF)
_SUBNORMAL_SCALE = _F(2.0**24)
#: Adding 1.5 * 2^23 rounds |x| < 2^22 to an integer, which then sits in the low bits.
_ROUND = _F(12582912.0)
_ROUND_BITS = np.int32(0x4B400000)

_LOG2E = _F(float.fromhex("0x1.715476p+0"))
_LN2_HI = _F(float.fromhex("0x1.62e430p-1"))
_LN2_LO = _F(float.fromhex("-0x1.05c610p-29"))
_EXP_LOW = _F(-104.0)  # exp rounds to 0 here and below
_EXP_HIGH = _F(89.0)  # exp overflows here and above
_EXP = tuple(
    _F(float.fromhex(c)) for c in ("0x1.fffffcp-2", "0x1.555492p-3", "0x1.5558aap-5", "0x1.12396ep-7", "0x1.6a524ep-10")
)
_RECIP_SEED = _U(0x7EF311C3)
_RSQRT_SEED = _U(0x5F375A86)
_TANH_SPLIT = _F(0.5625)
_TANH = tuple(
    _F(float.fromhex(c))
    for c in ("-0x1.555548p-2", "0x1.110c5ep-3", "-0x1.b905c4p-5", "0x1.5811f6p-6", "-0x1.9454f2p-8")
)
_SIN = tuple(_F(float.fromhex(c)) for c in ("-0x1.555546p-3", "0x1.110778p-7", "-0x1.995406p-13"))
_COS = tuple(_F(float.fromhex(c)) for c in ("0x1.55554ap-5", "-0x1.6c0c28p-10", "0x1.99e80cp-16"))
_PIO4 = _F(float.fromhex("0x1.921fb6p-1"))
_PIO2_HI = _F(float.fromhex("0x1.921fb6p+0"))
_PIO2_LO = _F(float.fromhex("-0x1.777a5cp-25"))
#: 32 zero bits, then the fraction bits of 2/pi.
_TWO_OVER_PI = np.array(
    [0, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB], dtype=np.uint64
)


def _f32(x: npt.ArrayLike) -> F32:
    return np.asarray(x, dtype=np.float32)


def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F32:
    """a * b + c, rounded once to float32 (nearest even), subnormal results included."""
    with np.errstate(all="ignore"):
        # The product of two float32 is exact in float64. The sum is rounded to odd (from the exact error of 2Sum),
        # after which rounding to float32 is as if done once: 53 bits are more than two above 24.
        product = _f32(a).astype(np.float64) * _f32(b).astype(np.float64)
        addend = _f32(c).astype(np.float64)
        total = np.asarray(product + addend)
        part = total - product
        error = (product - (total - part)) + (addend - part)
        bits = np.ascontiguousarray(total).view(np.int64).reshape(total.shape)
        even = (bits & 1) == 0
        inexact = (error != 0.0) & np.isfinite(total)
        step = np.where((error > 0.0) == (total > 0.0), np.int64(1), np.int64(-1))
        odd = np.atleast_1d(np.where(inexact & even, bits + step, bits)).view(np.float64)
        return odd.astype(np.float32).reshape(total.shape)


def maximum(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """The larger; NaN if either is NaN; +0 is larger than -0."""
    x, y = np.broadcast_arrays(_f32(a), _f32(b))
    # Equal values have equal bits except for the two zeros, whose common bits are +0.
    same = from_bits(as_bits(x) & as_bits(y))
    larger = np.where(x > y, x, np.where(x == y, same, y))
    return np.where(np.isnan(x) | np.isnan(y), from_bits(CANONICAL_NAN_F32), larger)


def less(a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """1.0 where a < b, else 0.0 (also if either is NaN)."""
    return np.where(_f32(a) < _f32(b), _F(1.0), _F(0.0))


def select(c: npt.ArrayLike, a: npt.ArrayLike, b: npt.ArrayLike) -> F32:
    """a where c != 0, else b; a NaN counts as not zero, both zeros as zero."""
    return np.where(_f32(c) != _F(0.0), _f32(a), _f32(b))


def _scale(y: F32, n: npt.NDArray[np.int32]) -> F32:
    """y * 2^n for |n| <= 250 in two steps, so that only the last product can be inexact (subnormal or overflow)."""
    half = n >> np.int32(1)
    rest = n - half
    first = from_bits(((half + np.int32(127)) << np.int32(23)).view(np.uint32))
    second = from_bits(((rest + np.int32(127)) << np.int32(23)).view(np.uint32))
    return (y * first) * second


def _normalise(x: F32) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]:
    """(mantissa bits, exponent) of |x| for finite x > 0, subnormals included: |x| = 1.mantissa * 2^exponent."""
    small = (as_bits(x) & _ABS) < _U(0x00800000)
    bits = as_bits(np.where(small, x * _SUBNORMAL_SCALE, x)) & _ABS
    exponent = (bits >> _U(23)).view(np.int32) - np.where(small, np.int32(127 + 24), np.int32(127))
    return bits & _MANTISSA, exponent


def _polynomial(z: F32, coefficients: tuple[np.float32, ...]) -> F32:
    """c0 + c1 z + c2 z^2 + ... by Horner with fma."""
    result = np.broadcast_to(coefficients[-1], z.shape)
    for coefficient in coefficients[-2::-1]:
        result = fma(result, z, coefficient)
    return _f32(result)


def exp(x: npt.ArrayLike) -> F32:
    """e^x: 0 for -inf, inf for inf; results below 2^-126 are subnormal."""
    with np.errstate(all="ignore"):
        return canonical(_exp(np.atleast_1d(_f32(x)))).reshape(np.shape(x))


def _exp(x: F32) -> F32:
    clamped = np.where(x < _EXP_LOW, _EXP_LOW, x)
    clamped = np.where(clamped > _EXP_HIGH, _EXP_HIGH, clamped)
    shifted = fma(clamped, _LOG2E, _ROUND)
    count = shifted.view(np.int32) - _ROUND_BITS
    n = shifted - _ROUND
    # The argument less n ln 2 as r + lost, then 1 + r as whole + part: only the last addition rounds at full size.
    exact = fma(n, -_LN2_HI, clamped)
    r = fma(n, -_LN2_LO, exact)
    lost = fma(n, -_LN2_LO, exact - r)
    whole = _F(1.0) + r
    part = r - (whole - _F(1.0))
    unscaled = _f32(whole + (part + fma(r * r, _polynomial(r, _EXP), lost)))
    result = _scale(unscaled, np.where(np.isnan(x), np.int32(0), count))
    return np.where(np.isnan(x), x, result)


def _recip_unit(m: F32) -> F32:
    """1 / m for 1 <= m <= 2."""
    y = from_bits(_RECIP_SEED - as_bits(m))
    for _ in range(3):
        y = fma(y, fma(-m, y, _F(1.0)), y)
    return y


def recip(x: npt.ArrayLike) -> F32:
    """1 / x: +-inf for +-0 and for |x| < 2^-128 (about), +-0 for +-inf."""
    with np.errstate(all="ignore"):
        v = np.atleast_1d(_f32(x))
        mantissa, exponent = _normalise(v)
        y = _scale(_recip_unit(from_bits(mantissa | _ONE)), -exponent)
        magnitude = as_bits(v) & _ABS
        y = np.where(magnitude == 0, from_bits(_INF), y)
        y = np.where(magnitude == _INF, _F(0.0), y)
        y = from_bits(as_bits(y) | (as_bits(v) & _SIGN))
        return canonical(np.where(np.isnan(v), v, y)).reshape(np.shape(x))


def rsqrt(x: npt.ArrayLike) -> F32:
    """1 / sqrt(x): +-inf for +-0, NaN below zero, +0 for inf."""
    with np.errstate(all="ignore"):
        v = np.atleast_1d(_f32(x))
        mantissa, exponent = _normalise(v)
        odd = exponent & np.int32(1)
        m = from_bits(mantissa | ((odd + np.int32(127)) << np.int32(23)).view(np.uint32))  # 1 <= m < 4
        y = from_bits(_RSQRT_SEED - (as_bits(m) >> _U(1)))
        for _ in range(2):
            y = fma(_F(0.5) * y, fma(-(m * y), y, _F(1.0)), y)
        product = m * y
        rest = fma(m, y, -product)
        residual = fma(-rest, y, fma(-product, y, _F(1.0)))
        y = fma(_F(0.5) * y, residual, y)
        y = _scale(y, -((exponent - odd) >> np.int32(1)))
        bits = as_bits(v)
        y = np.where(bits == _INF, _F(0.0), y)
        y = np.where((bits & _ABS) == 0, from_bits(_INF | (bits & _SIGN)), y)
        y = np.where(np.isnan(v) | (v < _F(0.0)), from_bits(CANONICAL_NAN_F32), y)
        return y.reshape(np.shape(x))


def sigmoid(x: npt.ArrayLike) -> F32:
    """1 / (1 + e^-x)."""
    with np.errstate(all="ignore"):
        v = np.atleast_1d(_f32(x))
        t = _exp(from_bits(as_bits(v) | _SIGN))  # e^-|x|
        r = _recip_one_plus(t)
        y = np.where(v < _F(0.0), t * r, r)
        return canonical(np.where(np.isnan(v), v, y)).reshape(np.shape(x))


def _recip_one_plus(t: F32) -> F32:
    """1 / (1 + t) for 0 <= t <= 1; the rounding error of 1 + t is put back by the last step."""
    d = _F(1.0) + t
    lost = t - (d - _F(1.0))
    y = from_bits(_RECIP_SEED - as_bits(d))
    for _ in range(2):
        y = fma(y, fma(-d, y, _F(1.0)), y)
    residual = fma(-lost, y, fma(-d, y, _F(1.0)))
    return fma(y, residual, y)


def tanh(x: npt.ArrayLike) -> F32:
    """Hyperbolic tangent; keeps the sign of zero."""
    with np.errstate(all="ignore"):
        v = np.atleast_1d(_f32(x))
        a = from_bits(as_bits(v) & _ABS)
        z = a * a
        near = fma(a * z, _polynomial(np.where(a < _TANH_SPLIT, z, _F(0.0)), _TANH), a)
        t = _exp(_F(-2.0) * a)
        far = fma(_F(-2.0) * t, _recip_one_plus(t), _F(1.0))
        y = np.where(a < _TANH_SPLIT, near, far)
        y = from_bits(as_bits(y) | (as_bits(v) & _SIGN))
        return canonical(np.where(np.isnan(v), v, y)).reshape(np.shape(x))


def _reduce_angle(a: F32) -> tuple[F32, F32, npt.NDArray[np.uint32]]:
    """(r, rest, quadrant) with a = quadrant * pi/2 + r + rest modulo 2 pi, |r| <= pi/4, for finite a >= 0.

    a = M * 2^e with a 24-bit integer M. Of the bits of 2/pi only a window of 96 matters: those above it contribute
    whole turns, those below less than 2^-69 of a quadrant. Three 32-bit products give the angle in units of 2^-62
    quadrants.
    """
    bits = as_bits(a)
    small = a <= _PIO4
    mantissa = ((bits & _MANTISSA) | _U(0x00800000)).astype(np.uint64)
    # First bit of the window in the table: a has e = field - 150, and weight 2^1 quadrants is at table bit e + 30.
    start = np.where(small, np.int32(0), (bits >> _U(23)).view(np.int32) - np.int32(150 - 30))
    word = start >> np.int32(5)
    shift = (start & np.int32(31)).astype(np.uint64)
    low32 = np.uint64(0xFFFFFFFF)
    s32 = np.uint64(32)
    t0, t1, t2, t3 = (_TWO_OVER_PI[word + k] for k in range(4))
    w0 = (((t0 << s32) | t1) << shift) >> s32
    w1 = (((t1 << s32) | t2) << shift) >> s32
    w2 = (((t2 << s32) | t3) << shift) >> s32
    angle = ((mantissa * w0 & low32) << s32) + mantissa * w1 + ((mantissa * w2) >> s32)
    quadrant = (angle + np.uint64(1 << 61)) >> np.uint64(62)
    fraction = (angle - (quadrant << np.uint64(62))).view(np.int64)
    # Three pieces of at most 24 bits convert exactly; their sum is kept as high + low.
    magnitude = np.abs(fraction)
    top = (magnitude >> np.int64(40)).astype(np.int32).astype(np.float32) * _F(2.0**-22)
    middle = ((magnitude >> np.int64(16)) & np.int64(0xFFFFFF)).astype(np.int32).astype(np.float32) * _F(2.0**-46)
    bottom = (magnitude & np.int64(0xFFFF)).astype(np.int32).astype(np.float32) * _F(2.0**-62)
    high = top + middle
    low = (middle - (high - top)) + bottom
    r = high * _PIO2_HI
    rest = fma(low, _PIO2_HI, fma(high, _PIO2_LO, fma(high, _PIO2_HI, -r)))
    negative = np.where(fraction < 0, _SIGN, _U(0))
    r = np.where(small, a, from_bits(as_bits(r) ^ negative))
    rest = np.where(small, _F(0.0), from_bits(as_bits(rest) ^ negative))
    return r, rest, np.where(small, _U(0), quadrant.astype(np.uint32) & _U(3))


def _sin_cos(x: npt.ArrayLike, turn: int, odd: bool) -> F32:
    """sin(x + turn * pi/2); ``odd`` if the function changes sign with x."""
    with np.errstate(all="ignore"):
        v = np.atleast_1d(_f32(x))
        a = from_bits(as_bits(v) & _ABS)
        r, rest, quadrant = _reduce_angle(a)
        quadrant = quadrant + _U(turn)
        z = r * r
        sine = r + fma(r * z, _polynomial(z, _SIN), rest)
        half = _F(0.5) * z
        w = _F(1.0) - half
        cosine = w + fma(z * z, _polynomial(z, _COS), fma(-r, rest, (_F(1.0) - w) - half))
        y = np.where((quadrant & _U(1)) == 0, sine, cosine)
        sign = (quadrant & _U(2)) << _U(30)
        if odd:
            sign = sign ^ (as_bits(v) & _SIGN)
        y = from_bits(as_bits(y) ^ sign)
        return np.where(np.isfinite(v), y, from_bits(CANONICAL_NAN_F32)).reshape(np.shape(x))


def sin(x: npt.ArrayLike) -> F32:
    """Sine of x radians, accurate for every finite x; NaN for infinities; keeps the sign of zero."""
    return _sin_cos(x, 0, odd=True)


def cos(x: npt.ArrayLike) -> F32:
    """Cosine of x radians, accurate for every finite x; NaN for infinities."""
    return _sin_cos(x, 1, odd=False)


def reduce_sum(x: npt.ArrayLike, mask: npt.ArrayLike | None = None) -> F32:
    """Sum over the last axis: element i is added to strand i mod 16 in ascending order from +0, then the fixed tree.

    Elements where ``mask`` is false are skipped. The result has the shape of x without its last axis.
    """
    values = _f32(x)
    count = values.shape[-1]
    keep = np.broadcast_to(True if mask is None else np.asarray(mask, dtype=bool), values.shape)
    rows = -(-count // SUM_STRANDS)
    padding = [(0, 0)] * (values.ndim - 1) + [(0, rows * SUM_STRANDS - count)]
    shape = (*values.shape[:-1], rows, SUM_STRANDS)
    strands = np.pad(values, padding).reshape(shape)
    keep = np.pad(keep, padding).reshape(shape)
    total = np.zeros((*values.shape[:-1], SUM_STRANDS), dtype=np.float32)
    with np.errstate(all="ignore"):
        for row in range(rows):
            total = np.where(keep[..., row, :], total + strands[..., row, :], total)
        return canonical(tree_sum(total))


def reduce_max(x: npt.ArrayLike, mask: npt.ArrayLike | None = None) -> F32:
    """Maximum over the last axis as :func:`maximum` gives it, in any order; -inf if nothing is left by the mask."""
    values = _masked(x, mask)
    largest = np.max(values, axis=-1, initial=_F(-np.inf))
    plus_zero = ((values == _F(0.0)) & ~np.signbit(values)).any(axis=-1)
    signed = np.where(largest == _F(0.0), np.where(plus_zero, _F(0.0), _F(-0.0)), largest)
    return np.where(np.isnan(values).any(axis=-1), from_bits(CANONICAL_NAN_F32), signed)


def reduce_argmax(x: npt.ArrayLike, mask: npt.ArrayLike | None = None) -> npt.NDArray[np.int32]:
    """Lowest index of the largest value of the last axis (zeros are equal); the first NaN wins; 0 if all is masked."""
    values = _masked(x, mask)
    if values.shape[-1] == 0:
        return np.zeros(values.shape[:-1], dtype=np.int32)
    largest = reduce_max(x, mask)[..., np.newaxis]
    wins = (values == largest) | np.isnan(values)
    if mask is not None:
        wins &= np.asarray(mask, dtype=bool)
    winner: npt.NDArray[np.int32] = np.argmax(wins, axis=-1).astype(np.int32)
    return winner


def _masked(x: npt.ArrayLike, mask: npt.ArrayLike | None) -> F32:
    values = _f32(x)
    if mask is None:
        return values
    return np.where(np.asarray(mask, dtype=bool), values, _F(-np.inf))
