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
using isa::Engine;
using isa::Opcode;

constexpr std::size_t max_operation_operands = 6;

// One pre-decoded instruction. Affine operands are in the order of the declaration (those of VPASS are in its PassForm).
struct Operation {
    Opcode opcode{};
    std::uint8_t rd = 0;      // LOOP, scalar instructions that write a register
    std::uint8_t field = 0;   // WAIT/SIGNAL: signal; GETS: shared register; TMOD: mode; WRMAC16: advance; XOUT/XIN: argument word
    std::uint32_t extra = 0;  // LOOP: index after the body; VPASS: index into Stream::passes
    std::array<isa::Affine, max_operation_operands> operands{};
};

constexpr std::size_t max_pass_operands = 4, max_pass_scalars = 8, max_pass_operations = 16, max_pass_reductions = 2;
constexpr int pass_values = isa::first_result_value + static_cast<int>(max_pass_operations);

constexpr std::int32_t bytes_of(isa::Dtype dtype) { return isa::dtype_bytes[static_cast<std::size_t>(dtype)]; }

// What is fixed in a VPASS. Every value number is checked: an operation uses only operands, scalars and earlier results that exist.
struct PassForm {
    std::uint8_t n_operands = 0, n_scalars = 0, n_operations = 0, n_reductions = 0;
    bool has_result = false;
    isa::LayoutWord result_layout;
    isa::BroadcastWord result_target;
    isa::Affine result_base;
    std::array<isa::Affine, 5> extents{};  // n0, n1, n2, low, high
    std::array<isa::Affine, max_pass_operands> bases{};
    std::array<isa::LayoutWord, max_pass_operands> layouts{};
    std::array<isa::ScalarWord, max_pass_scalars> scalars{};
    std::array<isa::OperationWord, max_pass_operations> operations{};  // unused sources repeat the first
    std::array<isa::ReductionWord, max_pass_reductions> reductions{};
};

struct Stream {
    Engine engine = Engine::channel;
    std::uint32_t channel_mask = 0;  // channel streams only
    std::vector<Operation> operations;
    std::vector<PassForm> passes;
};

struct Program {
    std::vector<Stream> streams;
    std::array<std::int32_t, 256> producer;  // stream that signals each signal number, -1: none
    std::size_t image_words = 0;             // 64-bit words of instruction memory

    // Throws Error("bad-program") that names stream and word. Checked against the machine: lengths, opcodes, engines, registers, loop bodies
    // and their depth, signals and their single producer, pass value numbers and formats, instruction memory; at most one channel stream
    // for a channel, one vector stream and one link stream.
    static Program parse(std::span<const std::byte> image, const Machine& machine);
};

}  // namespace wordline
