// The vector unit's functions, bit for bit as docs/numerics.md and src/wordline/numerics/vector.py define them.
//
// Only IEEE float32 add, sub, mul, fma and integer operations; no libm, no branches, so that loops over them vectorise.
// Compile with -ffp-contract=off and without -ffast-math. fma is the instruction where the target has one, otherwise an
// exact emulation in float64: the bits are the same.
//
// Everything has internal linkage: kernels are compiled once per instruction set and must not share these (simd.hpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace wordline::vec {
namespace {

#define WORDLINE_VEC [[gnu::always_inline]] inline

constexpr std::uint32_t kSign = 0x80000000u;
constexpr std::uint32_t kAbs = 0x7FFFFFFFu;
constexpr std::uint32_t kInf = 0x7F800000u;
constexpr std::uint32_t kNan = 0x7FC00000u;
constexpr std::uint32_t kOne = 0x3F800000u;
constexpr std::uint32_t kMantissa = 0x007FFFFFu;
constexpr std::uint32_t kMinNormal = 0x00800000u;
constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
constexpr std::uint32_t kRoundBits = 0x4B400000u;
constexpr std::uint32_t kRecipSeed = 0x7EF311C3u;
constexpr std::uint32_t kRsqrtSeed = 0x5F375A86u;
constexpr float kTanhSplit = 0.5625f;
constexpr float kPio4 = 0x1.921fb6p-1f;
constexpr float kPio2Hi = 0x1.921fb6p+0f;
constexpr float kPio2Lo = -0x1.777a5cp-25f;
// 32 zero bits, then the fraction bits of 2/pi.
constexpr std::uint32_t kTwoOverPi[8] = {0,          0xA2F9836Eu, 0x4E441529u, 0xFC2757D1u,
                                         0xF534DDC0u, 0xDB629599u, 0x3C439041u, 0xFE5163ABu};
// Element i of a sum is added to strand i mod 16.
constexpr std::size_t kSumStrands = 16;

WORDLINE_VEC std::uint32_t as_bits(float x) { return __builtin_bit_cast(std::uint32_t, x); }
WORDLINE_VEC float from_bits(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

WORDLINE_VEC float canonical(float x) { return x != x ? from_bits(kNan) : x; }

// bf16 bits of x, rounded to nearest even; any NaN becomes 0x7FC0.
WORDLINE_VEC std::uint16_t to_bf16(float x) {
    const std::uint32_t bits = as_bits(x);
    const std::uint32_t rounded = (bits + (0x7FFFu + ((bits >> 16) & 1u))) >> 16;
    return static_cast<std::uint16_t>((bits & kAbs) > kInf ? 0x7FC0u : rounded);
}
WORDLINE_VEC float from_bf16(std::uint16_t bits) { return from_bits(static_cast<std::uint32_t>(bits) << 16); }
WORDLINE_VEC float round_bf16(float x) { return from_bf16(to_bf16(x)); }

// a * b + c, rounded once.
WORDLINE_VEC float fma(float a, float b, float c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return __builtin_fmaf(a, b, c);
#else
    // The product is exact in float64; the sum is rounded to odd (the error of 2Sum is exact), after which rounding to
    // float32 is as if done once.
    const double product = static_cast<double>(a) * static_cast<double>(b);
    const double addend = static_cast<double>(c);
    const double total = product + addend;
    const double part = total - product;
    const double error = (product - (total - part)) + (addend - part);
    // Integer arithmetic without comparisons, which baseline x86 has no 64-bit vector form of. An infinite or NaN total is
    // left alone; an even last bit moves one step towards the exact value if there is an error.
    const std::uint64_t bits = __builtin_bit_cast(std::uint64_t, total);
    const std::uint64_t error_bits = __builtin_bit_cast(std::uint64_t, error);
    const std::uint64_t special = ((bits & 0x7FF0000000000000u) + 0x0010000000000000u) >> 63;
    const std::uint64_t inexact = ((error_bits << 1) | (std::uint64_t{0} - (error_bits << 1))) >> 63;
    const std::uint64_t moves = inexact & ~special & ~bits & 1u;
    const std::uint64_t down = (bits ^ error_bits) >> 63;
    const std::uint64_t step = moves - ((moves & down) << 1);
    return static_cast<float>(__builtin_bit_cast(double, bits + step));
#endif
}

WORDLINE_VEC float maximum(float a, float b) {
    const float same = from_bits(as_bits(a) & as_bits(b));
    const float larger = a > b ? a : (a == b ? same : b);
    return (a != a) | (b != b) ? from_bits(kNan) : larger;
}
WORDLINE_VEC float less(float a, float b) { return a < b ? 1.0f : 0.0f; }
WORDLINE_VEC float select(float c, float a, float b) { return c != 0.0f ? a : b; }

// y * 2^n for |n| <= 250 in two steps: only the last product can be inexact.
WORDLINE_VEC float scale(float y, std::int32_t n) {
    const std::int32_t half = n >> 1;
    const std::int32_t rest = n - half;
    const float first = from_bits(static_cast<std::uint32_t>(half + 127) << 23);
    const float second = from_bits(static_cast<std::uint32_t>(rest + 127) << 23);
    return (y * first) * second;
}

struct Normalised {
    std::uint32_t mantissa;
    std::int32_t exponent;
};
WORDLINE_VEC Normalised normalise(float x) {
    const bool small = (as_bits(x) & kAbs) < kMinNormal;
    const std::uint32_t bits = as_bits(small ? x * 0x1p24f : x) & kAbs;
    return {bits & kMantissa, static_cast<std::int32_t>(bits >> 23) - (small ? 127 + 24 : 127)};
}

WORDLINE_VEC float exp_unchecked(float x) {
    float clamped = x < -104.0f ? -104.0f : x;
    clamped = clamped > 89.0f ? 89.0f : clamped;
    const float shifted = fma(clamped, 0x1.715476p+0f, kRound);
    const std::int32_t count = static_cast<std::int32_t>(as_bits(shifted) - kRoundBits);
    const float n = shifted - kRound;
    // The argument less n ln 2, as r + lost; then 1 + r as whole + part, so that only the last addition rounds at full size.
    const float exact = fma(n, -0x1.62e430p-1f, clamped);
    const float r = fma(n, 0x1.05c610p-29f, exact);
    const float lost = fma(n, 0x1.05c610p-29f, exact - r);
    const float whole = 1.0f + r;
    const float part = r - (whole - 1.0f);
    float p = 0x1.6a524ep-10f;
    p = fma(p, r, 0x1.12396ep-7f);
    p = fma(p, r, 0x1.5558aap-5f);
    p = fma(p, r, 0x1.555492p-3f);
    p = fma(p, r, 0x1.fffffcp-2f);
    const float result = scale(whole + (part + fma(r * r, p, lost)), x != x ? 0 : count);
    return x != x ? x : result;
}
WORDLINE_VEC float exp(float x) { return canonical(exp_unchecked(x)); }

WORDLINE_VEC float recip(float x) {
    const Normalised v = normalise(x);
    const float m = from_bits(v.mantissa | kOne);
    float y = from_bits(kRecipSeed - as_bits(m));
    y = fma(y, fma(-m, y, 1.0f), y);
    y = fma(y, fma(-m, y, 1.0f), y);
    y = fma(y, fma(-m, y, 1.0f), y);
    y = scale(y, -v.exponent);
    const std::uint32_t magnitude = as_bits(x) & kAbs;
    y = magnitude == 0 ? from_bits(kInf) : y;
    y = magnitude == kInf ? 0.0f : y;
    y = from_bits(as_bits(y) | (as_bits(x) & kSign));
    return x != x ? from_bits(kNan) : y;
}

WORDLINE_VEC float rsqrt(float x) {
    const Normalised v = normalise(x);
    const std::int32_t odd = v.exponent & 1;
    const float m = from_bits(v.mantissa | (static_cast<std::uint32_t>(odd + 127) << 23));
    float y = from_bits(kRsqrtSeed - (as_bits(m) >> 1));
    y = fma(0.5f * y, fma(-(m * y), y, 1.0f), y);
    y = fma(0.5f * y, fma(-(m * y), y, 1.0f), y);
    const float product = m * y;
    const float rest = fma(m, y, -product);
    const float residual = fma(-rest, y, fma(-product, y, 1.0f));
    y = fma(0.5f * y, residual, y);
    y = scale(y, -((v.exponent - odd) >> 1));
    const std::uint32_t bits = as_bits(x);
    y = bits == kInf ? 0.0f : y;
    y = (bits & kAbs) == 0 ? from_bits(kInf | (bits & kSign)) : y;
    return (x != x) | (x < 0.0f) ? from_bits(kNan) : y;
}

// 1 / (1 + t) for 0 <= t <= 1; the rounding error of 1 + t is put back by the last step.
WORDLINE_VEC float recip_one_plus(float t) {
    const float d = 1.0f + t;
    const float lost = t - (d - 1.0f);
    float y = from_bits(kRecipSeed - as_bits(d));
    y = fma(y, fma(-d, y, 1.0f), y);
    y = fma(y, fma(-d, y, 1.0f), y);
    const float residual = fma(-lost, y, fma(-d, y, 1.0f));
    return fma(y, residual, y);
}

WORDLINE_VEC float sigmoid(float x) {
    const float t = exp_unchecked(from_bits(as_bits(x) | kSign));
    const float r = recip_one_plus(t);
    const float y = x < 0.0f ? t * r : r;
    return x != x ? from_bits(kNan) : y;
}

WORDLINE_VEC float tanh(float x) {
    const float a = from_bits(as_bits(x) & kAbs);
    const float z = a * a;
    const float bounded = a < kTanhSplit ? z : 0.0f;
    float p = -0x1.9454f2p-8f;
    p = fma(p, bounded, 0x1.5811f6p-6f);
    p = fma(p, bounded, -0x1.b905c4p-5f);
    p = fma(p, bounded, 0x1.110c5ep-3f);
    p = fma(p, bounded, -0x1.555548p-2f);
    const float near = fma(a * z, p, a);
    const float t = exp_unchecked(-2.0f * a);
    const float far = fma(-2.0f * t, recip_one_plus(t), 1.0f);
    const float y = from_bits(as_bits(a < kTanhSplit ? near : far) | (as_bits(x) & kSign));
    return x != x ? from_bits(kNan) : y;
}

struct Angle {
    float r;
    float rest;
    std::uint32_t quadrant;
};
// a = quadrant * pi/2 + r + rest modulo 2 pi, |r| <= pi/4, for finite a >= 0.
WORDLINE_VEC Angle reduce_angle(float a) {
    const std::uint32_t bits = as_bits(a);
    const bool small = a <= kPio4;
    const std::uint64_t mantissa = (bits & kMantissa) | kMinNormal;
    // Below pi/4, and for infinities and NaN, this is some place in the table; the result is replaced.
    const std::uint32_t start = (bits >> 23) - (150u - 30u);
    const std::uint32_t word = (start >> 5) & 7u;
    const std::uint32_t shift = start & 31u;
    const std::uint64_t t0 = kTwoOverPi[word];
    const std::uint64_t t1 = kTwoOverPi[(word + 1) & 7u];
    const std::uint64_t t2 = kTwoOverPi[(word + 2) & 7u];
    const std::uint64_t t3 = kTwoOverPi[(word + 3) & 7u];
    const std::uint64_t w0 = (((t0 << 32) | t1) << shift) >> 32;
    const std::uint64_t w1 = (((t1 << 32) | t2) << shift) >> 32;
    const std::uint64_t w2 = (((t2 << 32) | t3) << shift) >> 32;
    const std::uint64_t angle = ((mantissa * w0) << 32) + mantissa * w1 + ((mantissa * w2) >> 32);
    const std::uint64_t quadrant = (angle + (std::uint64_t{1} << 61)) >> 62;
    const std::uint64_t fraction = angle - (quadrant << 62);
    const std::uint64_t fill = ~((fraction >> 63) - 1);  // all ones if negative
    const std::uint64_t magnitude = (fraction ^ fill) - fill;
    const float top = static_cast<float>(static_cast<std::int32_t>(magnitude >> 40)) * 0x1p-22f;
    const float middle = static_cast<float>(static_cast<std::int32_t>((magnitude >> 16) & 0xFFFFFFu)) * 0x1p-46f;
    const float bottom = static_cast<float>(static_cast<std::int32_t>(magnitude & 0xFFFFu)) * 0x1p-62f;
    const float high = top + middle;
    const float low = (middle - (high - top)) + bottom;
    const float r = high * kPio2Hi;
    const float rest = fma(low, kPio2Hi, fma(high, kPio2Lo, fma(high, kPio2Hi, -r)));
    const std::uint32_t negative = static_cast<std::uint32_t>(fill) & kSign;
    return {small ? a : from_bits(as_bits(r) ^ negative), small ? 0.0f : from_bits(as_bits(rest) ^ negative),
            small ? 0u : static_cast<std::uint32_t>(quadrant) & 3u};
}

// sin(x + turn * pi/2); `odd_sign` is the sign bit of x for sin, 0 for cos.
WORDLINE_VEC float sin_cos(float x, std::uint32_t turn, std::uint32_t odd_sign) {
    const Angle angle = reduce_angle(from_bits(as_bits(x) & kAbs));
    const std::uint32_t quadrant = angle.quadrant + turn;
    const float r = angle.r;
    const float z = r * r;
    const float s = fma(fma(-0x1.995406p-13f, z, 0x1.110778p-7f), z, -0x1.555546p-3f);
    const float sine = r + fma(r * z, s, angle.rest);
    const float half = 0.5f * z;
    const float w = 1.0f - half;
    const float c = fma(fma(0x1.99e80cp-16f, z, -0x1.6c0c28p-10f), z, 0x1.55554ap-5f);
    const float cosine = w + fma(z * z, c, fma(-r, angle.rest, (1.0f - w) - half));
    const float y = (quadrant & 1u) == 0 ? sine : cosine;
    const std::uint32_t sign = ((quadrant & 2u) << 30) ^ odd_sign;
    const bool finite = (as_bits(x) & kAbs) < kInf;
    return finite ? from_bits(as_bits(y) ^ sign) : from_bits(kNan);
}
WORDLINE_VEC float sin(float x) { return sin_cos(x, 0, as_bits(x) & kSign); }
WORDLINE_VEC float cos(float x) { return sin_cos(x, 1, 0); }

// The fixed tree over 16 strands: i and i + 8, then i + 4, i + 2, i + 1. Overwrites its argument.
WORDLINE_VEC float sum_tree(float* strands) {
    for (std::size_t width = kSumStrands / 2; width > 0; width /= 2)
        for (std::size_t i = 0; i < width; ++i) strands[i] = strands[i] + strands[i + width];
    return strands[0];
}

// Sum of x[0..n): element i goes to strand i mod 16 in ascending order from +0, then the tree. `mask` (one byte an element,
// 0 = skip) may be null.
inline float reduce_sum(const float* x, const std::uint8_t* mask, std::size_t n) {
    float strands[kSumStrands] = {};
    const auto add = [&](std::size_t base, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            const float sum = strands[i] + x[base + i];
            strands[i] = mask == nullptr || mask[base + i] != 0 ? sum : strands[i];
        }
    };
    std::size_t base = 0;
    for (; base + kSumStrands <= n; base += kSumStrands) add(base, kSumStrands);
    add(base, n - base);
    return canonical(sum_tree(strands));
}

// maximum() over x[0..n) in any order; -inf if nothing is left by the mask.
inline float reduce_max(const float* x, const std::uint8_t* mask, std::size_t n) {
    float result = from_bits(kInf | kSign);
    for (std::size_t i = 0; i < n; ++i) {
        const float value = mask == nullptr || mask[i] != 0 ? x[i] : from_bits(kInf | kSign);
        result = maximum(result, value);
    }
    return result;
}

// Lowest index of the largest element (zeros are equal); the first NaN wins; 0 if nothing is left by the mask.
inline std::int32_t reduce_argmax(const float* x, const std::uint8_t* mask, std::size_t n) {
    const float largest = reduce_max(x, mask, n);
    for (std::size_t i = 0; i < n; ++i) {
        const bool kept = mask == nullptr || mask[i] != 0;
        if (kept && (x[i] == largest || (largest != largest && x[i] != x[i]))) return static_cast<std::int32_t>(i);
    }
    return 0;
}

#undef WORDLINE_VEC

}  // namespace
}  // namespace wordline::vec
