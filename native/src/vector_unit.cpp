#include "wordline/vector_unit.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace wordline {
namespace {

constexpr std::uint32_t canonical_nan = 0x7FC00000U;

std::int64_t modulo(std::int64_t value, std::int64_t space) {
    const std::int64_t rest = value % space;
    return rest < 0 ? rest + space : rest;
}

// The element addresses of a vector in flat order, as runs along the inner index. `space` is the size of the memory, in which addresses
// wrap; all strides are taken modulo it, so that one conditional subtraction keeps an address inside.
class Walk {
public:
    Walk(const PassCommand& pass, const isa::LayoutWord& layout, std::int64_t base, std::int64_t space)
        : n1_(pass.n1),
          n2_(pass.n2),
          base_(modulo(base, space)),
          s0_(modulo(layout.s0, space)),
          s1_(modulo(layout.s1, space)),
          s2_(modulo(layout.s2, space)),
          space_(space),
          turn_(layout.rotate != 0 ? pass.n2 / 2 : 0) {}

    // Calls run(flat index, address of its first element, elements, negative) for [first, first + n): elements of a run are `stride()` apart
    // (wrapping), and those of a rotated half that changes sign are flagged.
    template <class Run>
    void each(std::int64_t first, std::int64_t n, Run&& run) const {
        for (std::int64_t at = first; at < first + n;) {
            const std::int64_t row = at / n2_, k = at - row * n2_;
            const std::int64_t i = row / n1_, j = row - i * n1_;
            // Element k of a rotated vector reads k + turn modulo n2; at turn, half of the even n2, the index wraps and the sign changes.
            const std::int64_t count = std::min((k < turn_ ? turn_ : n2_) - k, first + n - at);
            const std::int64_t source = k < turn_ ? k + turn_ : k - turn_;
            const std::int64_t address =
                (base_ + product(i, s0_) + product(j, s1_) + product(source, s2_)) % space_;
            run(at, address, count, k < turn_);
            at += count;
        }
    }

    std::int64_t stride() const { return s2_; }
    std::int64_t next(std::int64_t address) const {
        address += s2_;
        return address >= space_ ? address - space_ : address;
    }
    bool is_contiguous(std::int64_t address, std::int64_t count, std::int64_t size) const {
        return s2_ == size && address + count * size <= space_;
    }

private:
    // Index and stride are below 2^31 each, so neither this nor the sum of three overflows.
    static std::int64_t product(std::int64_t index, std::int64_t stride) { return index * stride; }

    std::int64_t n1_, n2_, base_, s0_, s1_, s2_, space_, turn_;
};

template <class T>
T read(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

}  // namespace

struct VectorUnit::Reducing {
    float strands[sum_strands] = {};
    float largest = -std::numeric_limits<float>::infinity();
    std::int64_t index = -1;  // of the largest element so far; -1: nothing valid yet
};

VectorUnit::VectorUnit(const Machine& machine, const Kernels& kernels, AlignedArray<std::byte>& scratch)
    : kernels_(kernels),
      scratch_(scratch.data()),
      scratch_bytes_(machine.scratch_bytes()),
      channel_bytes_(machine.scratch.bytes_per_channel),
      channels_(machine.organisation.channels),
      values_(static_cast<std::size_t>(pass_values) * block) {}

void VectorUnit::load(const PassCommand& pass, std::size_t operand, std::int64_t first, std::size_t n, float* to) const {
    const isa::LayoutWord& layout = pass.form->layouts[operand];
    const Walk walk(pass, layout, pass.bases[operand], scratch_bytes_);
    const std::int64_t size = bytes_of(layout.dtype);
    walk.each(first, static_cast<std::int64_t>(n), [&](std::int64_t at, std::int64_t address, std::int64_t count, bool negative) {
        float* const out = to + (at - first);
        const auto length = static_cast<std::size_t>(count);
        if (walk.is_contiguous(address, count, size)) {
            const std::byte* const from = scratch_ + address;
            switch (layout.dtype) {
                case isa::Dtype::bf16:
                    kernels_.widen_bf16(reinterpret_cast<const std::uint16_t*>(from), out, length);
                    break;
                case isa::Dtype::f32:
                    std::memcpy(out, from, length * sizeof(float));
                    break;
                case isa::Dtype::i32:
                    kernels_.widen_i32(reinterpret_cast<const std::int32_t*>(from), out, length);
                    break;
                case isa::Dtype::f16:
                    break;  // refused when the program is loaded
            }
        } else {
            for (std::size_t e = 0; e < length; ++e, address = walk.next(address)) {
                switch (layout.dtype) {
                    case isa::Dtype::bf16:
                        out[e] = std::bit_cast<float>(std::uint32_t{read<std::uint16_t>(scratch_ + address)} << 16);
                        break;
                    case isa::Dtype::f32:
                        out[e] = read<float>(scratch_ + address);
                        break;
                    case isa::Dtype::i32:
                        out[e] = static_cast<float>(read<std::int32_t>(scratch_ + address));
                        break;
                    case isa::Dtype::f16:
                        break;  // refused when the program is loaded
                }
            }
        }
        if (negative) {
            for (std::size_t e = 0; e < length; ++e) {
                out[e] = -out[e];
            }
        }
    });
}

void VectorUnit::compute_block(const PassCommand& pass, std::int64_t first, std::size_t n) {
    const PassForm& form = *pass.form;
    for (std::size_t i = 0; i < form.n_operands; ++i) {
        load(pass, i, first, n, value(static_cast<int>(i)));
    }
    for (int i = 0; i < form.n_operations; ++i) {
        const isa::OperationWord& op = form.operations[static_cast<std::size_t>(i)];
        kernels_.vector_operation(static_cast<int>(op.op), value(op.a), value(op.b), value(op.c), value(isa::first_result_value + i), n);
    }
}

void VectorUnit::reduce(const PassForm& form, const PassCommand& pass, std::int64_t first, std::size_t n, Reducing* reducing) const {
    const std::int64_t low = std::max<std::int64_t>(pass.low, first);
    const std::int64_t high = std::min<std::int64_t>(pass.high, first + static_cast<std::int64_t>(n));
    if (low >= high) {
        return;
    }
    const auto length = static_cast<std::size_t>(high - low);
    for (std::size_t i = 0; i < form.n_reductions; ++i) {
        Reducing& state = reducing[i];
        const float* const x = value(form.reductions[i].value) + (low - first);
        switch (form.reductions[i].kind) {
            case isa::Reduction::sum:
                kernels_.accumulate_strands(x, length, static_cast<std::size_t>(low) % sum_strands, state.strands);
                break;
            case isa::Reduction::max:
                state.largest = kernels_.maximum_of(x, length, state.largest);
                break;
            case isa::Reduction::argmax: {
                if (state.largest != state.largest) {
                    break;  // the first NaN has won
                }
                const float largest = kernels_.maximum_of(x, length, state.largest);
                if (state.index < 0 || largest != largest || largest > state.largest) {
                    const auto* const found =
                        std::find_if(x, x + length, [largest](float v) { return v == largest || (largest != largest && v != v); });
                    state.index = low + (found - x);
                    state.largest = largest;
                }
                break;
            }
        }
    }
}

void VectorUnit::store(const PassCommand& pass, std::int64_t base, std::int64_t space, std::byte* memory) const {
    const isa::LayoutWord& layout = pass.form->result_layout;
    const std::int64_t size = bytes_of(layout.dtype);
    const Walk walk(pass, layout, base, space);
    walk.each(0, pass.n, [&](std::int64_t at, std::int64_t address, std::int64_t count, bool) {
        const std::byte* from = results_.data() + at * size;
        if (walk.is_contiguous(address, count, size)) {
            std::memcpy(memory + address, from, static_cast<std::size_t>(count * size));
            return;
        }
        for (std::int64_t e = 0; e < count; ++e, address = walk.next(address), from += size) {
            std::memcpy(memory + address, from, static_cast<std::size_t>(size));
        }
    });
}

void VectorUnit::run(const PassCommand& pass, std::int32_t* shared) {
    const PassForm& form = *pass.form;
    Reducing reducing[max_pass_reductions];
    for (std::size_t i = 0; i < form.n_scalars; ++i) {
        float* const filled = value(isa::first_scalar_value + static_cast<int>(i));
        std::fill(filled, filled + std::min(block, static_cast<std::size_t>(pass.n)), pass.scalars[i]);
    }
    const std::int64_t size = bytes_of(form.result_layout.dtype);
    if (form.has_result) {
        results_.resize(static_cast<std::size_t>(pass.n * size));
    }
    for (std::int64_t first = 0; first < pass.n; first += static_cast<std::int64_t>(block)) {
        const std::size_t n = std::min(block, static_cast<std::size_t>(pass.n - first));
        compute_block(pass, first, n);
        reduce(form, pass, first, n, reducing);
        if (!form.has_result) {
            continue;
        }
        std::byte* const to = results_.data() + first * size;
        if (form.result_layout.dtype == isa::Dtype::bf16) {
            kernels_.narrow_bf16(value(form.result_target.value), reinterpret_cast<std::uint16_t*>(to), n);
        } else {
            kernels_.canonical_f32(value(form.result_target.value), reinterpret_cast<std::uint32_t*>(to), n);
        }
        const std::int64_t valid_from = std::clamp<std::int64_t>(pass.low - first, 0, static_cast<std::int64_t>(n));
        const std::int64_t valid_to = std::clamp<std::int64_t>(pass.high - first, valid_from, static_cast<std::int64_t>(n));
        std::memset(to, 0, static_cast<std::size_t>(valid_from * size));
        std::memset(to + valid_to * size, 0, (n - static_cast<std::size_t>(valid_to)) * static_cast<std::size_t>(size));
    }
    if (form.has_result && pass.n > 0) {
        const std::uint32_t mask = form.result_target.channels;
        if (mask == 0) {
            store(pass, pass.result_base, scratch_bytes_, scratch_);
        }
        for (std::int32_t channel = 0; channel < channels_; ++channel) {
            if ((mask >> channel & 1U) != 0) {
                store(pass, pass.result_base, channel_bytes_, scratch_ + channel * channel_bytes_);
            }
        }
    }
    for (std::size_t i = 0; i < form.n_reductions; ++i) {
        const isa::ReductionWord& word = form.reductions[i];
        Reducing& state = reducing[i];
        if (word.kind == isa::Reduction::argmax) {
            shared[word.shared] = static_cast<std::int32_t>(std::max<std::int64_t>(state.index, 0));
            continue;
        }
        const float result = word.kind == isa::Reduction::sum ? kernels_.finish_strands(state.strands) : state.largest;
        shared[word.shared] = std::bit_cast<std::int32_t>(result != result ? canonical_nan : std::bit_cast<std::uint32_t>(result));
    }
}

}  // namespace wordline
