#include "wordline/simd.hpp"

namespace wordline {

const char* simd_name(SimdVariant variant) {
    switch (variant) {
        case SimdVariant::avx512:
            return "avx512";
        case SimdVariant::avx2:
            return "avx2";
        case SimdVariant::portable:
            break;
    }
    return "portable";
}

std::vector<SimdVariant> available_simd_variants() {
    std::vector<SimdVariant> variants{SimdVariant::portable};
#ifdef WORDLINE_HAVE_X86_VARIANTS
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        variants.push_back(SimdVariant::avx2);
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq")) {
            variants.push_back(SimdVariant::avx512);
        }
    }
#endif
    return variants;
}

std::optional<SimdVariant> find_simd_variant(std::string_view name) {
    const std::vector<SimdVariant> variants = available_simd_variants();
    if (name == "auto") {
        return variants.back();
    }
    for (const SimdVariant variant : variants) {
        if (name == simd_name(variant)) {
            return variant;
        }
    }
    return std::nullopt;
}

}  // namespace wordline
