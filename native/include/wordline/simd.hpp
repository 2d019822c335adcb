// Instruction-set variants of the kernels and the choice among them at run time.
//
// Every file of native/src/kernels/ is compiled once per variant, and defines its functions in
// `namespace wordline::WORDLINE_SIMD_NAMESPACE` (portable, avx2 or avx512). A header declares a kernel for all variants with
// WORDLINE_DECLARE_KERNEL, and the caller picks one with WORDLINE_SELECT_KERNEL. All variants give the same bits.
//
// Beware of inline functions and templates with external linkage in kernel files: the linker keeps one copy of each,
// perhaps the one compiled for AVX-512, and portable code would then call it. Helpers that a kernel includes therefore live in
// `namespace wordline::WORDLINE_SIMD_NAMESPACE` or an anonymous namespace, and kernels use no standard containers.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace wordline {

enum class SimdVariant { portable, avx2, avx512 };

// Stable lower-case name: "portable", "avx2", "avx512".
const char* simd_name(SimdVariant variant);

// Variants that were compiled in and that this processor and operating system can run, slowest first.
std::vector<SimdVariant> available_simd_variants();

// The variant of that name ("auto": the fastest available); none when the name is unknown or this processor lacks it.
std::optional<SimdVariant> find_simd_variant(std::string_view name);

}  // namespace wordline

#ifdef WORDLINE_HAVE_X86_VARIANTS
#define WORDLINE_DECLARE_KERNEL(...)        \
    namespace wordline::portable {          \
    __VA_ARGS__;                            \
    }                                       \
    namespace wordline::avx2 {              \
    __VA_ARGS__;                            \
    }                                       \
    namespace wordline::avx512 {            \
    __VA_ARGS__;                            \
    }
#define WORDLINE_SELECT_KERNEL(variant, function)                                            \
    ((variant) == ::wordline::SimdVariant::avx512 ? &::wordline::avx512::function            \
     : (variant) == ::wordline::SimdVariant::avx2 ? &::wordline::avx2::function              \
                                                  : &::wordline::portable::function)
#else
#define WORDLINE_DECLARE_KERNEL(...)        \
    namespace wordline::portable {          \
    __VA_ARGS__;                            \
    }
#define WORDLINE_SELECT_KERNEL(variant, function) (static_cast<void>(variant), &::wordline::portable::function)
#endif
