// Kernels of the bank unit and of data movement between DRAM images, storage and float values.
//
// Storage of one column of all 16 banks ("column block", 512 bytes): 32-bit words [w = 0..7][bank 0..15], low half lane w, high half lane
// w + 8. One vector load then yields lanes w and w + 8 of many banks, and the tree of the bank unit is vertical.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wordline/simd.hpp"

namespace wordline {

constexpr int banks_per_block = 16;
constexpr int lanes_per_column = 16;
constexpr std::size_t block_words = 128;
constexpr std::size_t block_bytes = 512;

}  // namespace wordline

// accumulators[16 banks] += tree of (column block i) * x[16 i .. 16 i + 15], for i = 0 .. count - 1 in order. Also asks for the data that a
// sequential reader will need next, which may lie outside the array: a prefetch has no effect on the program.
WORDLINE_DECLARE_KERNEL(void mac16(const std::uint32_t* blocks, const float* x, float* accumulators, int count))

// The same in one bank.
WORDLINE_DECLARE_KERNEL(float mac_bank(const std::uint32_t* blocks, int bank, const float* x, float accumulator, int count))

// One row of one channel from the image order [bank][column][lane] to `columns` column blocks, and back.
WORDLINE_DECLARE_KERNEL(void image_to_blocks(const std::uint16_t* image, std::uint32_t* blocks, int columns))
WORDLINE_DECLARE_KERNEL(void blocks_to_image(const std::uint32_t* blocks, std::uint16_t* image, int columns))

WORDLINE_DECLARE_KERNEL(void widen_bf16(const std::uint16_t* from, float* to, std::size_t n))
WORDLINE_DECLARE_KERNEL(void widen_i32(const std::int32_t* from, float* to, std::size_t n))
// Rounded to nearest even; every NaN becomes 0x7FC0.
WORDLINE_DECLARE_KERNEL(void narrow_bf16(const float* from, std::uint16_t* to, std::size_t n))
// Bits with every NaN as 0x7FC00000.
WORDLINE_DECLARE_KERNEL(void canonical_f32(const float* from, std::uint32_t* to, std::size_t n))

// Reads `bytes` (a multiple of 512) and returns a checksum: the speed limit of anything that streams from memory.
WORDLINE_DECLARE_KERNEL(std::uint32_t read_stream(const std::uint32_t* data, std::size_t bytes))
