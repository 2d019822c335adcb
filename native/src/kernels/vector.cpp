#include "wordline/vector_kernels.hpp"

#include "wordline/isa_gddr6_aim.hpp"
#include "wordline/vector_functions.hpp"

namespace wordline::WORDLINE_SIMD_NAMESPACE {

void vector_operation(int op, const float* __restrict a, const float* __restrict b, const float* __restrict c, float* __restrict out,
                      std::size_t n) {
    using gddr6_aim::VectorOp;
    switch (static_cast<VectorOp>(op)) {
#define EACH(operation, expression)           \
    case VectorOp::operation:                 \
        for (std::size_t i = 0; i < n; ++i) { \
            out[i] = expression;              \
        }                                     \
        return;
        EACH(add, a[i] + b[i])
        EACH(sub, a[i] - b[i])
        EACH(mul, a[i] * b[i])
        EACH(fma, vec::fma(a[i], b[i], c[i]))
        EACH(max, vec::maximum(a[i], b[i]))
        EACH(less, vec::less(a[i], b[i]))
        EACH(select, vec::select(a[i], b[i], c[i]))
        EACH(round_bf16, vec::round_bf16(a[i]))
        EACH(exp, vec::exp(a[i]))
        EACH(recip, vec::recip(a[i]))
        EACH(rsqrt, vec::rsqrt(a[i]))
        EACH(sigmoid, vec::sigmoid(a[i]))
        EACH(tanh, vec::tanh(a[i]))
        EACH(sin, vec::sin(a[i]))
        EACH(cos, vec::cos(a[i]))
#undef EACH
    }
}

void accumulate_strands(const float* x, std::size_t n, std::size_t first, float* strands) {
    std::size_t i = 0;
    for (std::size_t strand = first % sum_strands; strand != 0 && i < n; strand = (strand + 1) % sum_strands, ++i) {
        strands[strand] = strands[strand] + x[i];
    }
    float sums[sum_strands];
    for (std::size_t s = 0; s < sum_strands; ++s) {
        sums[s] = strands[s];
    }
    for (; i + sum_strands <= n; i += sum_strands) {
        for (std::size_t s = 0; s < sum_strands; ++s) {
            sums[s] = sums[s] + x[i + s];
        }
    }
    for (std::size_t s = 0; s < sum_strands; ++s) {
        strands[s] = sums[s];
    }
    for (std::size_t s = 0; i < n; ++s, ++i) {
        strands[s] = strands[s] + x[i];
    }
}

float finish_strands(float* strands) { return vec::canonical(vec::sum_tree(strands)); }

float maximum_of(const float* x, std::size_t n, float start) {
    float largest[sum_strands];
    for (std::size_t s = 0; s < sum_strands; ++s) {
        largest[s] = start;
    }
    std::size_t i = 0;
    for (; i + sum_strands <= n; i += sum_strands) {
        for (std::size_t s = 0; s < sum_strands; ++s) {
            largest[s] = vec::maximum(largest[s], x[i + s]);
        }
    }
    for (std::size_t s = 0; i < n; ++s, ++i) {
        largest[s] = vec::maximum(largest[s], x[i]);
    }
    for (std::size_t s = 1; s < sum_strands; ++s) {
        largest[0] = vec::maximum(largest[0], largest[s]);
    }
    return vec::canonical(largest[0]);
}

}  // namespace wordline::WORDLINE_SIMD_NAMESPACE
