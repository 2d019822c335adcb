#include "wordline/bank_kernels.hpp"

#include <cstring>

#include "wordline/vector_functions.hpp"

namespace wordline::WORDLINE_SIMD_NAMESPACE {
namespace {

#if defined(__AVX512F__)
constexpr int width = 16;
#elif defined(__AVX2__)
constexpr int width = 8;
#else
constexpr int width = 4;
#endif
constexpr int parts = banks_per_block / width;

typedef std::uint32_t Bits __attribute__((vector_size(4 * width)));
typedef float Floats __attribute__((vector_size(4 * width)));

inline Bits load_bits(const std::uint32_t* from) {
    Bits v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline Floats load_floats(const float* from) {
    Floats v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

// lanes w and w + 8, multiplied and added: the first level of the tree
inline Floats pair(const std::uint32_t* block, const float* x, int w) {
    const Bits bits = load_bits(block + banks_per_block * w);
    const Floats low = reinterpret_cast<Floats>(bits << 16);
    const Floats high = reinterpret_cast<Floats>(bits & 0xFFFF0000U);
    return low * x[w] + high * x[w + 8];
}

inline Floats column_sum(const std::uint32_t* block, const float* x) {
    const Floats even = (pair(block, x, 0) + pair(block, x, 4)) + (pair(block, x, 2) + pair(block, x, 6));
    const Floats odd = (pair(block, x, 1) + pair(block, x, 5)) + (pair(block, x, 3) + pair(block, x, 7));
    return even + odd;
}

constexpr std::uintptr_t prefetch_distance = 16 * block_bytes;

inline void prefetch_block(const std::uint32_t* block) {
    const std::uintptr_t ahead = reinterpret_cast<std::uintptr_t>(block) + prefetch_distance;
    for (std::uintptr_t line = 0; line < block_bytes; line += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(ahead + line));
    }
}

}  // namespace

void mac16(const std::uint32_t* blocks, const float* x, float* accumulators, int count) {
    Floats sum[parts];
    for (int p = 0; p < parts; ++p) {
        sum[p] = load_floats(accumulators + width * p);
    }
    for (int i = 0; i < count; ++i) {
        prefetch_block(blocks);
        for (int p = 0; p < parts; ++p) {
            sum[p] = sum[p] + column_sum(blocks + width * p, x);
        }
        blocks += block_words;
        x += lanes_per_column;
    }
    for (int p = 0; p < parts; ++p) {
        std::memcpy(accumulators + width * p, &sum[p], sizeof sum[p]);
    }
}

float mac_bank(const std::uint32_t* blocks, int bank, const float* x, float accumulator, int count) {
    for (int i = 0; i < count; ++i) {
        float sums[8];
        for (int w = 0; w < 8; ++w) {
            const std::uint32_t word = blocks[banks_per_block * w + bank];
            sums[w] = vec::from_bits(word << 16) * x[w] + vec::from_bits(word & 0xFFFF0000U) * x[w + 8];
        }
        for (int half = 4; half > 0; half /= 2) {
            for (int w = 0; w < half; ++w) {
                sums[w] = sums[w] + sums[w + half];
            }
        }
        accumulator = accumulator + sums[0];
        blocks += block_words;
        x += lanes_per_column;
    }
    return accumulator;
}

void image_to_blocks(const std::uint16_t* image, std::uint32_t* blocks, int columns) {
    for (int column = 0; column < columns; ++column) {
        for (int bank = 0; bank < banks_per_block; ++bank) {
            const std::uint16_t* const lanes = image + (static_cast<std::ptrdiff_t>(bank) * columns + column) * lanes_per_column;
            for (int w = 0; w < 8; ++w) {
                blocks[banks_per_block * w + bank] = static_cast<std::uint32_t>(lanes[w]) | static_cast<std::uint32_t>(lanes[w + 8]) << 16;
            }
        }
        blocks += block_words;
    }
}

void blocks_to_image(const std::uint32_t* blocks, std::uint16_t* image, int columns) {
    for (int column = 0; column < columns; ++column) {
        for (int bank = 0; bank < banks_per_block; ++bank) {
            std::uint16_t* const lanes = image + (static_cast<std::ptrdiff_t>(bank) * columns + column) * lanes_per_column;
            for (int w = 0; w < 8; ++w) {
                const std::uint32_t word = blocks[banks_per_block * w + bank];
                lanes[w] = static_cast<std::uint16_t>(word);
                lanes[w + 8] = static_cast<std::uint16_t>(word >> 16);
            }
        }
        blocks += block_words;
    }
}

void widen_bf16(const std::uint16_t* from, float* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        to[i] = vec::from_bf16(from[i]);
    }
}

void widen_i32(const std::int32_t* from, float* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        to[i] = static_cast<float>(from[i]);
    }
}

void narrow_bf16(const float* from, std::uint16_t* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        to[i] = vec::to_bf16(from[i]);
    }
}

void canonical_f32(const float* from, std::uint32_t* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
        to[i] = vec::as_bits(vec::canonical(from[i]));
    }
}

std::uint32_t read_stream(const std::uint32_t* data, std::size_t bytes) {
    Bits sums[4] = {};
    const std::uint32_t* const end = data + bytes / 4;
    for (; data < end; data += block_words) {
        prefetch_block(data);
        for (std::size_t i = 0; i < block_words; i += static_cast<std::size_t>(width)) {
            sums[i / width % 4] ^= load_bits(data + i);
        }
    }
    const Bits all = (sums[0] ^ sums[1]) ^ (sums[2] ^ sums[3]);
    std::uint32_t result = 0;
    for (int i = 0; i < width; ++i) {
        result ^= all[i];
    }
    return result;
}

}  // namespace wordline::WORDLINE_SIMD_NAMESPACE
