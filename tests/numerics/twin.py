"""The native twin of the vector functions, compiled once per instruction set and called through ctypes."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

INCLUDE = Path(__file__).parents[2] / "native" / "include"
UNARY = ("exp", "recip", "rsqrt", "sigmoid", "tanh", "sin", "cos", "canonical", "round_bf16")
BINARY = ("maximum", "less")
TERNARY = ("fma", "select")

_SOURCE = r"""
#include "wordline/vector_functions.hpp"
#include <cmath>
using namespace wordline;
using Floats = const float*;
using Mask = const std::uint8_t*;

#define EACH(name, arguments, call)                           \
    extern "C" void run_##name arguments {                    \
        for (std::size_t i = 0; i < n; ++i) y[i] = vec::call; \
    }
#define UNARY(name) EACH(name, (Floats x, float* y, std::size_t n), name(x[i]))
#define BINARY(name) EACH(name, (Floats a, Floats b, float* y, std::size_t n), name(a[i], b[i]))
#define TERNARY(name) EACH(name, (Floats a, Floats b, Floats c, float* y, std::size_t n), name(a[i], b[i], c[i]))
#define REDUCE(type, name) \
    extern "C" type run_##name(Floats x, Mask mask, std::size_t n) { return vec::name(x, mask, n); }
UNARY(exp) UNARY(recip) UNARY(rsqrt) UNARY(sigmoid) UNARY(tanh) UNARY(sin) UNARY(cos)
UNARY(canonical) UNARY(round_bf16) BINARY(maximum) BINARY(less) TERNARY(fma) TERNARY(select)
REDUCE(float, reduce_sum) REDUCE(float, reduce_max) REDUCE(std::int32_t, reduce_argmax)

// Largest error in ulp of the exact result over all float32 with bits in [first, last], against float64 libm, whose own
// error is some 2^-29 of such an ulp. The ulp is that of the binade of the exact result, 2^-149 at least. Where the
// exact result rounds to infinity, only that infinity is right, and where it is NaN, only the canonical NaN.
constexpr double kWrong = 1e6;
static double error_in_ulp(float y, double exact) {
    if (exact != exact) return vec::as_bits(y) == vec::kNan ? 0.0 : kWrong;
    if (std::signbit(y) != std::signbit(exact)) return kWrong;
    if (std::fabs(exact) >= 0x1.ffffffp127) return std::isinf(y) ? 0.0 : kWrong;
    if (!std::isfinite(y)) return kWrong;
    const int binade = exact == 0.0 ? -126 : std::ilogb(exact);
    return std::fabs(static_cast<double>(y) - exact) * std::ldexp(1.0, 23 - (binade < -126 ? -126 : binade));
}
template <class F, class R>
static double worst(F f, R ref, std::uint32_t first, std::uint32_t last, std::uint32_t* where) {
    double largest = 0.0;
    for (std::uint64_t bits = first; bits <= last; ++bits) {
        const float x = vec::from_bits(static_cast<std::uint32_t>(bits));
        const double error = error_in_ulp(f(x), ref(static_cast<double>(x)));
        if (error > largest) {
            largest = error;
            *where = static_cast<std::uint32_t>(bits);
        }
    }
    return largest;
}
#define WORST(name, expression)                                                                         \
    extern "C" double worst_##name(std::uint32_t first, std::uint32_t last, std::uint32_t* where) {     \
        const auto exact = [](double x) { return expression; };                                         \
        return worst([](float x) { return vec::name(x); }, exact, first, last, where);                  \
    }
WORST(exp, std::exp(x))
WORST(recip, 1.0 / x)
WORST(rsqrt, 1.0 / std::sqrt(x))
WORST(sigmoid, 1.0 / (1.0 + std::exp(-x)))
WORST(tanh, std::tanh(x))
WORST(sin, std::sin(x))
WORST(cos, std::cos(x))
"""

# The flags of CMakeLists.txt, per variant.
_COMMON = ["-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
_X86 = {
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mprefer-vector-width=512"],
}


def variants() -> list[str]:
    """Variants this processor runs, the portable one first."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["portable"]
    flags = Path("/proc/cpuinfo").read_text().split()
    found = ["portable"]
    if "avx2" in flags and "fma" in flags:
        found.append("avx2")
    if "avx512dq" in flags and "avx512vl" in flags and "avx512bw" in flags:
        found.append("avx512")
    return found


class Twin:
    """One compiled variant; methods take and return float32 arrays of one dimension."""

    def __init__(self, variant: str, folder: Path) -> None:
        source = folder / "twin.cpp"
        source.write_text(_SOURCE)
        library = folder / f"twin_{variant}.so"
        command = ["c++", *_COMMON, *_X86.get(variant, []), f"-I{INCLUDE}", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        self._library = ctypes.CDLL(str(library))
        for name in ("reduce_sum", "reduce_max"):
            self._function(f"run_{name}").restype = ctypes.c_float
        for name in UNARY[:7]:
            self._function(f"worst_{name}").restype = ctypes.c_double

    def _function(self, name: str) -> Any:
        return getattr(self._library, name)

    def elementwise(self, name: str, *operands: np.ndarray) -> np.ndarray:
        """The function applied to each element."""
        arrays = [np.ascontiguousarray(operand, dtype=np.float32) for operand in operands]
        result = np.empty_like(arrays[0])
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in [*arrays, result]]
        self._function(f"run_{name}")(*pointers, ctypes.c_size_t(result.size))
        return result

    def reduce(self, name: str, x: np.ndarray, mask: np.ndarray | None) -> float | int:
        """A reduction of the whole vector."""
        values = np.ascontiguousarray(x, dtype=np.float32)
        keep = None if mask is None else np.ascontiguousarray(mask, dtype=np.uint8)
        pointer = None if keep is None else ctypes.c_void_p(keep.ctypes.data)
        found: float | int = self._function(f"run_{name}")(
            ctypes.c_void_p(values.ctypes.data), pointer, ctypes.c_size_t(values.size)
        )
        return found

    def worst(self, name: str, first: int, last: int) -> tuple[float, int]:
        """(largest error in ulp, bits of the argument) over all float32 whose bits lie in first..last."""
        where = ctypes.c_uint32(0)
        error = self._function(f"worst_{name}")(ctypes.c_uint32(first), ctypes.c_uint32(last), ctypes.byref(where))
        return float(error), where.value
