// What one compiled variant was really built with.
#pragma once

#include "wordline/simd.hpp"

namespace wordline {

struct SimdProbe {
    int vector_bits;     // width of the widest vector register that the compiler was allowed to use
    bool fused_multiply; // std::fma is one instruction
};

}  // namespace wordline

WORDLINE_DECLARE_KERNEL(SimdProbe probe_simd())
