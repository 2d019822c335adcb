// A loaded device program: the image checked completely and pre-decoded, so that execution meets no malformed instruction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wordline/isa_gddr6_aim.hpp"
#include "wordline/machine.hpp"

namespace wordline {

namespace isa = gddr6_aim;
using isa::Opcode;

enum class EngineKind : std::uint8_t { channel = 0, vector = 1, link = 2 };

// An affine operand; evaluation wraps to 32-bit two's complement.
struct Operand {
    std::int32_t imm = 0;
    std::int16_t stride_a = 0, stride_b = 0;
    std::uint8_t register_a = 0, register_b = 0;

    std::int32_t evaluate(const std::int32_t* registers) const {
        return static_cast<std::int32_t>(static_cast<std::uint32_t>(imm) +
                                         static_cast<std::uint32_t>(registers[register_a]) * static_cast<std::uint32_t>(std::int32_t{stride_a}) +
                                         static_cast<std::uint32_t>(registers[register_b]) * static_cast<std::uint32_t>(std::int32_t{stride_b}));
    }
};

constexpr std::size_t max_operation_operands = 6;

// One pre-decoded instruction. Affine operands are in the order of the declaration (those of VPASS are in its PassForm).
struct Operation {
    Opcode opcode{};
    std::uint8_t rd = 0;      // LOOP, scalar instructions that write a register
    std::uint8_t field = 0;   // WAIT/SIGNAL: signal; GETS: shared register; TMOD: mode; WRMAC16: advance; XOUT/XIN: argument word
    std::uint32_t extra = 0;  // LOOP: index after the body; VPASS: index into Stream::passes
    std::array<Operand, max_operation_operands> operands{};
};

constexpr int first_scalar_value = 4;
constexpr int first_result_value = 12;
constexpr int pass_values = 28;
constexpr std::size_t max_pass_operands = 4, max_pass_scalars = 8, max_pass_operations = 16, max_pass_reductions = 2;

enum class DType : std::uint8_t { bf16 = 0, f32 = 1, i32 = 2 };
enum class ScalarKind : std::uint8_t { f32 = 0, shared_f32 = 1, register_i32 = 2, shared_i32 = 3 };
enum class Reduction : std::uint8_t { sum = 0, max = 1, argmax = 2 };

constexpr std::int32_t dtype_bytes(DType dtype) { return dtype == DType::bf16 ? 2 : 4; }

struct VectorLayout {
    std::int32_t s0 = 0, s1 = 0, s2 = 0;  // byte strides of the outer, middle and inner index
    DType dtype = DType::bf16;
    bool rotate = false;
};

// What is fixed in a VPASS. Every value number is checked: an operation uses only operands, scalars and earlier results that exist.
struct PassForm {
    struct Scalar {
        ScalarKind kind = ScalarKind::f32;
        std::uint32_t value = 0;  // float32 bits, or the register number
    };
    struct Compute {
        std::uint8_t op = 0, a = 0, b = 0, c = 0;
    };
    struct Reduce {
        Reduction kind = Reduction::sum;
        std::uint8_t value = 0;
        std::uint8_t shared = 0;
    };
    std::uint8_t n_operands = 0, n_scalars = 0, n_operations = 0, n_reductions = 0;
    bool has_result = false;
    std::uint8_t result_value = 0;
    std::uint32_t result_channels = 0;  // broadcast mask; 0: linear address
    VectorLayout result_layout;
    std::array<VectorLayout, max_pass_operands> layouts{};
    std::array<Scalar, max_pass_scalars> scalars{};
    std::array<Compute, max_pass_operations> operations{};
    std::array<Reduce, max_pass_reductions> reductions{};
    std::array<Operand, 5> extents{};  // n0, n1, n2, low, high
    std::array<Operand, max_pass_operands> bases{};
    Operand result_base;
};

struct Stream {
    EngineKind engine = EngineKind::channel;
    std::uint32_t channel_mask = 0;  // channel streams only
    std::vector<Operation> operations;
    std::vector<PassForm> passes;
};

struct Program {
    std::vector<Stream> streams;
    std::array<std::int32_t, 256> producer;  // stream that signals each signal number, -1: none

    // Throws Error("bad-program") that names stream and word. Checked against the machine: lengths, opcodes, engines, registers, loop bodies
    // and their depth, signals and their single producer, pass value numbers and formats, instruction memory; at most one channel stream
    // for a channel, one vector stream and one link stream.
    static Program parse(std::span<const std::byte> image, const Machine& machine);
};

}  // namespace wordline
