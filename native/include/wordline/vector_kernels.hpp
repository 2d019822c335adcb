// Kernels of the vector unit: one operation of a pass over a block of elements, and the steps of its reductions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wordline/simd.hpp"

namespace wordline {

constexpr std::size_t sum_strands = 16;

}  // namespace wordline

// out[i] = op(a[i], b[i], c[i]); `op` is the code of a VectorOp, sources that it does not have are ignored. out may not overlap a source.
WORDLINE_DECLARE_KERNEL(void vector_operation(int op, const float* a, const float* b, const float* c, float* out, std::size_t n))

// strands[(first + i) % 16] += x[i] in ascending order.
WORDLINE_DECLARE_KERNEL(void accumulate_strands(const float* x, std::size_t n, std::size_t first, float* strands))
// The fixed tree over 16 strands, any NaN canonical. Overwrites its argument.
WORDLINE_DECLARE_KERNEL(float finish_strands(float* strands))
// Maximum of `start` and x[0 .. n - 1]: NaN if any is NaN.
WORDLINE_DECLARE_KERNEL(float maximum_of(const float* x, std::size_t n, float start))
