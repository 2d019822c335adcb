// The functional vector unit: passes over the linear scratch space.
#pragma once

#include <cstdint>
#include <vector>

#include "wordline/command_processor.hpp"
#include "wordline/kernels.hpp"
#include "wordline/memory.hpp"

namespace wordline {

class VectorUnit {
public:
    VectorUnit(const Machine& machine, const Kernels& kernels, AlignedArray<std::byte>& scratch);

    // Runs one pass; shared[r] receives the word of a reduction that names register r.
    void run(const PassCommand& pass, std::int32_t* shared);

private:
    struct Reducing;

    void compute_block(const PassCommand& pass, std::int64_t first, std::size_t n);
    void load(const PassCommand& pass, std::size_t operand, std::int64_t first, std::size_t n, float* to) const;
    void store(const PassCommand& pass, std::int64_t base, std::int64_t space, std::byte* memory) const;
    void reduce(const PassForm& form, const PassCommand& pass, std::int64_t first, std::size_t n, Reducing* reducing) const;
    float* value(int number) { return values_.data() + static_cast<std::size_t>(number) * block; }
    const float* value(int number) const { return values_.data() + static_cast<std::size_t>(number) * block; }

    static constexpr std::size_t block = 512;  // elements that go through all operations together

    const Kernels& kernels_;
    std::byte* scratch_;
    std::int64_t scratch_bytes_, channel_bytes_;
    std::int32_t channels_;
    AlignedArray<float> values_;      // [value number][block]
    std::vector<std::byte> results_;  // the whole result, in its format: a pass reads everything before it writes
};

}  // namespace wordline
