#include "wordline/simd_probe.hpp"

namespace wordline::WORDLINE_SIMD_NAMESPACE {

SimdProbe probe_simd() {
#if defined(__AVX512F__)
    constexpr int bits = 512;
#elif defined(__AVX2__)
    constexpr int bits = 256;
#else
    constexpr int bits = 128;
#endif
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    constexpr bool fused = true;
#else
    constexpr bool fused = false;
#endif
    return {bits, fused};
}

}  // namespace wordline::WORDLINE_SIMD_NAMESPACE
