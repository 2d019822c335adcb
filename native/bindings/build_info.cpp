#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.hpp"
#include "wordline/simd.hpp"
#include "wordline/simd_probe.hpp"

namespace {

std::string compiler() {
#if defined(__clang__)
    return std::string("clang ") + __clang_version__;
#else
    return std::string("gcc ") + __VERSION__;
#endif
}

nb::dict build_info() {
    nb::dict simd;
    for (const wordline::SimdVariant variant : wordline::available_simd_variants()) {
        const wordline::SimdProbe probe = WORDLINE_SELECT_KERNEL(variant, probe_simd)();
        nb::dict entry;
        entry["vector_bits"] = probe.vector_bits;
        entry["fma"] = probe.fused_multiply;
        simd[wordline::simd_name(variant)] = entry;
    }
    nb::dict info;
    info["compiler"] = compiler();
    info["cplusplus"] = static_cast<long>(__cplusplus);
#if defined(__SANITIZE_ADDRESS__)
    info["sanitized"] = true;
#else
    info["sanitized"] = false;
#endif
    info["simd"] = simd;
    return info;
}

}  // namespace

void bind_build_info(nb::module_& m) {
    m.def("build_info", &build_info,
          "How this module was compiled: compiler, __cplusplus, sanitized, and simd: for each variant that this processor can run, "
          "slowest first, its vector width in bits and whether fma is one instruction.");
}
