// The kernels of one instruction-set variant, as pointers that are chosen once.
#pragma once

#include "wordline/bank_kernels.hpp"
#include "wordline/vector_kernels.hpp"

namespace wordline {

struct Kernels {
    decltype(&portable::mac16) mac16;
    decltype(&portable::mac_bank) mac_bank;
    decltype(&portable::image_to_blocks) image_to_blocks;
    decltype(&portable::blocks_to_image) blocks_to_image;
    decltype(&portable::widen_bf16) widen_bf16;
    decltype(&portable::widen_i32) widen_i32;
    decltype(&portable::narrow_bf16) narrow_bf16;
    decltype(&portable::canonical_f32) canonical_f32;
    decltype(&portable::read_stream) read_stream;
    decltype(&portable::vector_operation) vector_operation;
    decltype(&portable::accumulate_strands) accumulate_strands;
    decltype(&portable::finish_strands) finish_strands;
    decltype(&portable::maximum_of) maximum_of;

    static Kernels of(SimdVariant variant) {
        return {WORDLINE_SELECT_KERNEL(variant, mac16),           WORDLINE_SELECT_KERNEL(variant, mac_bank),
                WORDLINE_SELECT_KERNEL(variant, image_to_blocks), WORDLINE_SELECT_KERNEL(variant, blocks_to_image),
                WORDLINE_SELECT_KERNEL(variant, widen_bf16),      WORDLINE_SELECT_KERNEL(variant, widen_i32),
                WORDLINE_SELECT_KERNEL(variant, narrow_bf16),     WORDLINE_SELECT_KERNEL(variant, canonical_f32),
                WORDLINE_SELECT_KERNEL(variant, read_stream),     WORDLINE_SELECT_KERNEL(variant, vector_operation),
                WORDLINE_SELECT_KERNEL(variant, accumulate_strands), WORDLINE_SELECT_KERNEL(variant, finish_strands),
                WORDLINE_SELECT_KERNEL(variant, maximum_of)};
    }
};

}  // namespace wordline
