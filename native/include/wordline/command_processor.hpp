// The command processor: executes one stream of a program (registers, loops, affine operands, scalar instructions, controller memory) and
// hands every evaluated and range-checked command to a sink. Functional and timing models are sinks; what a program means and when it
// faults is decided here once.
//
// A sink has these members (`instruction` is the index of the instruction in its stream):
//   bool wait(int signal, std::int32_t value, std::uint32_t instruction)   false: not reached; the runner returns and asks again in its next run()
//   void signal(int signal, std::uint32_t instruction)
//   void scalar(Opcode, std::uint32_t instruction)   what only takes its slot: loop entry, arithmetic, loads, stores, bursts of no column
//   void command(const ChannelCommand&)    bank, buffer and row commands; count >= 1 where there is one
//   void pass(const PassCommand&)
//   void transfer(const TransferCommand&)  also transfers of no byte
//   std::int32_t load_word(std::int64_t, std::uint32_t instruction) / void store_word(std::int64_t, std::int32_t)   controller memory, address checked
//   std::int32_t load_shared(int)
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "wordline/interruption.hpp"
#include "wordline/program.hpp"

namespace wordline {

// A program did something that the device refuses. `channel` is 0 for vector and link streams.
struct Fault : std::runtime_error {
    Fault(int stream, int channel, std::uint32_t instruction, const std::string& reason)
        : std::runtime_error(reason), stream(stream), channel(channel), instruction(instruction) {}
    int stream, channel;
    std::uint32_t instruction;
};

// A channel instruction with its operands evaluated; those that it does not have are 0.
struct ChannelCommand {
    Opcode opcode;
    std::uint8_t field;  // TMOD: mode; REF: when; WRMAC16: advance
    std::uint32_t instruction;
    std::int32_t bank, row, column, buffer, accumulator;
    std::int32_t count;    // columns or accumulators; 1 for what has no count
    std::int32_t scratch;  // source or target, byte offset in the channel's scratch
    std::int32_t lanes;    // WRE
};

struct PassCommand {
    const PassForm* form;
    std::uint32_t instruction;
    std::int64_t n;  // n0 * n1 * n2
    std::int32_t n0, n1, n2, low, high;
    std::array<std::int32_t, max_pass_operands> bases;
    std::int32_t result_base;
    std::array<float, max_pass_scalars> scalars;
};

struct TransferCommand {
    Opcode opcode;
    std::uint32_t instruction;
    std::uint64_t host;  // host address, offset included
    std::int64_t scratch, stride, blocks, bytes;  // blocks and bytes are >= 0
};

enum class RunStatus { blocked, stopped, finished };

constexpr std::uint32_t no_stop = std::numeric_limits<std::uint32_t>::max();

constexpr std::uint64_t no_instruction_limit = std::numeric_limits<std::uint64_t>::max();

// Between interruption points of a stream: a few milliseconds of bank commands, much less of anything else. A vector pass or a transfer counts
// as one more instruction for so many operations or bytes.
constexpr std::uint64_t instructions_a_share = 4096, operations_an_instruction = 1024, bytes_an_instruction = 8192;

template <class Sink>
class StreamRunner {
public:
    StreamRunner(const Machine& machine, const Program& program, int stream, int channel, std::int64_t argument_base, Sink& sink,
                 std::uint64_t instruction_limit = no_instruction_limit)
        : machine_(machine),
          program_(program.streams[static_cast<std::size_t>(stream)]),
          sink_(sink),
          argument_base_(argument_base),
          budget_(instruction_limit),
          stream_(stream),
          channel_(channel) {
        if (program_.engine == Engine::channel) {
            registers_[1] = channel;
        }
    }

    // Runs until the stream ends, a WAIT is not satisfied, or instruction `stop` (outside all loops) is next. Throws Fault, and Interrupted
    // at an interruption point.
    RunStatus run(std::uint32_t stop = no_stop);

    // Goes on at instruction `position` with the registers of `mask` changed to these values, in order of number. Only outside all loops.
    void skip(std::uint32_t position, const std::int32_t* values, std::uint32_t mask) {
        pc_ = position;
        for (; mask != 0; mask &= mask - 1) {
            registers_[static_cast<std::size_t>(std::countr_zero(mask))] = *values++;
        }
    }

    int stream() const { return stream_; }
    int channel() const { return channel_; }
    std::uint32_t position() const { return pc_; }  // the instruction that runs next (when blocked: the WAIT)
    const std::array<std::int32_t, 32>& registers() const { return registers_; }

private:
    struct Loop {
        std::uint32_t first, end;
        std::int32_t index, count;
        std::uint8_t rd;
    };

    [[noreturn, gnu::cold, gnu::noinline]] void fault(const std::string& reason) const { throw Fault(stream_, channel_, pc_, reason); }

    [[noreturn, gnu::cold, gnu::noinline]] void out_of_range(const char* what, std::int64_t value, std::int64_t limit) const {
        fault(std::string(what) + " " + std::to_string(value) + " is outside 0.." + std::to_string(limit - 1));
    }

    void check(const char* what, std::int64_t value, std::int64_t limit) const {
        if (static_cast<std::uint64_t>(value) >= static_cast<std::uint64_t>(limit)) [[unlikely]] {
            out_of_range(what, value, limit);
        }
    }

    // first .. first + count - 1 within 0 .. limit - 1; count >= 1.
    void check_range(const char* what, std::int64_t first, std::int64_t count, std::int64_t limit) const {
        if (first < 0 || first + count > limit) [[unlikely]] {
            out_of_range(what, first < 0 ? first : first + count - 1, limit);
        }
    }

    void check_scratch(std::int64_t first, std::int64_t bytes, std::int32_t alignment) const {
        check_range("scratch offset", first, bytes, machine_.scratch.bytes_per_channel);
        if (first % alignment != 0) [[unlikely]] {
            fault("scratch offset " + std::to_string(first) + " is not a multiple of " + std::to_string(alignment));
        }
    }

    std::int64_t word_address(std::int64_t address) const {
        check("controller memory word", address, machine_.controller_words());
        return address;
    }

    std::int64_t argument_address(std::int64_t index) const { return word_address(argument_base_ + word_address(index)); }

    // An instruction is due and the share is used up: the next share, after an interruption point.
    [[gnu::noinline]] void take_share() {
        if (budget_ == 0) {
            share_ = 0;
            fault("the instruction limit of this run is reached");
        }
        interruption_point();
        share_ = std::min(budget_, instructions_a_share);
        if (budget_ != no_instruction_limit) {
            budget_ -= share_;
        }
    }

    // Shortens the share by work that takes as long as some instructions, without taking them from the limit.
    void charge(std::uint64_t instructions) {
        const std::uint64_t taken = std::min(instructions, share_);
        share_ -= taken;
        if (budget_ != no_instruction_limit) {
            budget_ += taken;
        }
    }

    void enter_loop(const Operation& op);
    void channel_command(const Operation& op);
    void vector_pass(const Operation& op);
    void check_vector(const char* what, const PassCommand& p, std::int32_t base, const isa::LayoutWord& layout) const;
    void link_transfer(const Operation& op);

    const Machine& machine_;
    const Stream& program_;
    Sink& sink_;
    std::array<std::int32_t, 32> registers_{};
    std::array<Loop, 64> loops_;
    int depth_ = 0;
    std::uint32_t pc_ = 0;
    std::uint32_t loop_end_ = std::numeric_limits<std::uint32_t>::max();
    std::int64_t argument_base_;
    std::uint64_t budget_;     // instructions that may still run, without those of the share
    std::uint64_t share_ = 0;  // instructions up to the next interruption point
    int stream_, channel_;
};

template <class Sink>
void StreamRunner<Sink>::enter_loop(const Operation& op) {
    const std::int32_t count = op.operands[0].evaluate(registers_.data());
    sink_.scalar(op.opcode, pc_);
    ++pc_;
    if (count <= 0) {
        pc_ = op.extra;
    } else if (op.extra == pc_) {  // an empty body only leaves its last index
        registers_[op.rd] = count - 1;
    } else {
        registers_[op.rd] = 0;
        loops_[static_cast<std::size_t>(depth_++)] = {pc_, op.extra, 0, count, op.rd};  // the depth is checked when the program is loaded
        loop_end_ = op.extra;
    }
}

template <class Sink>
RunStatus StreamRunner<Sink>::run(std::uint32_t stop) {
    const Operation* const operations = program_.operations.data();
    const auto end = static_cast<std::uint32_t>(program_.operations.size());
    std::int32_t* const r = registers_.data();
    for (;;) {
        while (pc_ == loop_end_) {
            Loop& loop = loops_[static_cast<std::size_t>(depth_ - 1)];
            if (++loop.index < loop.count) {
                r[loop.rd] = loop.index;
                pc_ = loop.first;
            } else {
                --depth_;
                loop_end_ = depth_ > 0 ? loops_[static_cast<std::size_t>(depth_ - 1)].end : std::numeric_limits<std::uint32_t>::max();
            }
        }
        if (pc_ >= end) {
            return RunStatus::finished;
        }
        if (pc_ == stop) {
            return RunStatus::stopped;
        }
        if (share_ == 0) [[unlikely]] {
            take_share();
        }
        --share_;
        const Operation& op = operations[pc_];
        const auto a = [&] { return op.operands[0].evaluate(r); };
        const auto b = [&] { return op.operands[1].evaluate(r); };
        const auto ua = [&] { return static_cast<std::uint32_t>(a()); };
        const auto ub = [&] { return static_cast<std::uint32_t>(b()); };
        const auto set = [&](std::uint32_t value) { r[op.rd] = static_cast<std::int32_t>(value); };
        switch (op.opcode) {
            case Opcode::Loop:
                enter_loop(op);
                continue;
            case Opcode::Wait:
                if (!sink_.wait(op.field, a(), pc_)) {
                    ++share_;  // it did not run
                    return RunStatus::blocked;
                }
                ++pc_;
                continue;
            case Opcode::Signal:
                sink_.signal(op.field, pc_);
                ++pc_;
                continue;
            case Opcode::Add:
                set(ua() + ub());
                break;
            case Opcode::Sub:
                set(ua() - ub());
                break;
            case Opcode::Mul:
                set(ua() * ub());
                break;
            case Opcode::Shl:
                set(ua() << (ub() & 31));
                break;
            case Opcode::Shr:
                r[op.rd] = a() >> (ub() & 31);
                break;
            case Opcode::And:
                set(ua() & ub());
                break;
            case Opcode::Or:
                set(ua() | ub());
                break;
            case Opcode::Min:
                r[op.rd] = std::min(a(), b());
                break;
            case Opcode::Lt:
                r[op.rd] = a() < b() ? 1 : 0;
                break;
            case Opcode::Eq:
                r[op.rd] = a() == b() ? 1 : 0;
                break;
            case Opcode::Lda:
                r[op.rd] = sink_.load_word(argument_address(a()), pc_);
                break;
            case Opcode::Ldm:
                r[op.rd] = sink_.load_word(word_address(a()), pc_);
                break;
            case Opcode::Gets:
                r[op.rd] = sink_.load_shared(op.field);
                break;
            case Opcode::Sta:
                sink_.store_word(argument_address(a()), b());
                break;
            case Opcode::Vpass:
                vector_pass(op);
                ++pc_;
                continue;
            case Opcode::Xout:
            case Opcode::Xin:
                link_transfer(op);
                ++pc_;
                continue;
            default:
                channel_command(op);
                ++pc_;
                continue;
        }
        sink_.scalar(op.opcode, pc_);
        ++pc_;
    }
}

template <class Sink>
void StreamRunner<Sink>::channel_command(const Operation& op) {
    const std::int32_t* const r = registers_.data();
    const Machine::Organisation& o = machine_.organisation;
    const auto value = [&](std::size_t i) { return op.operands[i].evaluate(r); };
    ChannelCommand c{op.opcode, op.field, pc_, 0, 0, 0, 0, 0, 1, 0, 0};
    switch (op.opcode) {
        case Opcode::Act:
            c.bank = value(0);
            c.row = value(1);
            check("bank", c.bank, o.banks);
            check("row", c.row, o.rows);
            break;
        case Opcode::Act16:
            c.row = value(0);
            check("row", c.row, o.rows);
            break;
        case Opcode::Pre:
            c.bank = value(0);
            check("bank", c.bank, o.banks);
            break;
        case Opcode::Mac16:
        case Opcode::Mac: {
            const std::size_t first = op.opcode == Opcode::Mac ? 1 : 0;
            c.count = value(first + 4);
            if (c.count <= 0) {
                return sink_.scalar(op.opcode, pc_);
            }
            c.bank = first != 0 ? value(0) : 0;
            c.row = value(first);
            c.column = value(first + 1);
            c.buffer = value(first + 2);
            c.accumulator = value(first + 3);
            check("bank", c.bank, o.banks);
            check("row", c.row, o.rows);
            check_range("column", c.column, c.count, o.columns);
            check_range("buffer column", c.buffer, c.count, machine_.buffer.columns);
            check("accumulator", c.accumulator, machine_.bank_unit.accumulators);
            break;
        }
        case Opcode::Rd:
        case Opcode::Wr:
            c.count = value(3);
            if (c.count <= 0) {
                return sink_.scalar(op.opcode, pc_);
            }
            c.bank = value(0);
            c.row = value(1);
            c.column = value(2);
            c.scratch = value(4);
            check("bank", c.bank, o.banks);
            check("row", c.row, o.rows);
            check_range("column", c.column, c.count, o.columns);
            check_scratch(c.scratch, std::int64_t{c.count} * o.column_bytes, o.column_bytes);
            break;
        case Opcode::Wre:
            c.bank = value(0);
            c.row = value(1);
            c.column = value(2);
            c.scratch = value(3);
            c.lanes = value(4);
            check("bank", c.bank, o.banks);
            check("row", c.row, o.rows);
            check("column", c.column, o.columns);
            check_scratch(c.scratch, 2, 2);
            break;
        case Opcode::Rdcp:
        case Opcode::Wrcp:
            c.count = value(4);
            if (c.count <= 0) {
                return sink_.scalar(op.opcode, pc_);
            }
            c.bank = value(0);
            c.row = value(1);
            c.column = value(2);
            c.buffer = value(3);
            check("bank", c.bank, o.banks);
            check("row", c.row, o.rows);
            check_range("column", c.column, c.count, o.columns);
            check_range("buffer column", c.buffer, c.count, machine_.buffer.columns);
            break;
        case Opcode::Wrgb:
            c.count = value(1);
            if (c.count <= 0) {
                return sink_.scalar(op.opcode, pc_);
            }
            c.buffer = value(0);
            c.scratch = value(2);
            check_range("buffer column", c.buffer, c.count, machine_.buffer.columns);
            check_scratch(c.scratch, std::int64_t{c.count} * o.column_bytes, o.column_bytes);
            break;
        case Opcode::Wrmac16:
        case Opcode::Rdmac16: {
            c.count = value(1);
            if (c.count <= 0) {
                return sink_.scalar(op.opcode, pc_);
            }
            c.accumulator = value(0);
            c.scratch = value(2);
            const bool advances = op.opcode == Opcode::Rdmac16 || op.field != 0;
            check_range("accumulator", c.accumulator, c.count, machine_.bank_unit.accumulators);
            check_scratch(c.scratch, std::int64_t{advances ? c.count : 1} * o.column_bytes, o.column_bytes);
            break;
        }
        default:  // PREA, REF, TMOD have no operand
            break;
    }
    sink_.command(c);
}

template <class Sink>
void StreamRunner<Sink>::check_vector(const char* what, const PassCommand& p, std::int32_t base, const isa::LayoutWord& layout) const {
    const std::int32_t size = bytes_of(layout.dtype);
    const auto misaligned = [size](std::int32_t value) { return value % size != 0; };
    if (misaligned(base) || (p.n0 > 1 && misaligned(layout.s0)) || (p.n1 > 1 && misaligned(layout.s1)) || (p.n2 > 1 && misaligned(layout.s2)))
        [[unlikely]] {
        fault(std::string(what) + " has an element address that is not a multiple of " + std::to_string(size));
    }
    if (layout.rotate != 0 && p.n2 % 2 != 0) [[unlikely]] {
        fault(std::string(what) + " rotates halves of an odd inner extent " + std::to_string(p.n2));
    }
}

template <class Sink>
void StreamRunner<Sink>::vector_pass(const Operation& op) {
    const std::int32_t* const r = registers_.data();
    const PassForm& form = program_.passes[op.extra];
    PassCommand p{};
    p.form = &form;
    p.instruction = pc_;
    p.n0 = std::max(form.extents[0].evaluate(r), 0);
    p.n1 = std::max(form.extents[1].evaluate(r), 0);
    p.n2 = std::max(form.extents[2].evaluate(r), 0);
    p.low = form.extents[3].evaluate(r);
    p.high = form.extents[4].evaluate(r);
    const std::int64_t limit = machine_.scratch_bytes();
    const std::int64_t outer = std::int64_t{p.n0} * p.n1;
    if (p.n2 > 0 && outer > 0 && (outer > limit || outer * p.n2 > limit)) [[unlikely]] {
        fault("the pass has more elements than scratch has bytes (" + std::to_string(limit) + ")");
    }
    p.n = p.n2 > 0 ? outer * p.n2 : 0;
    for (std::size_t i = 0; i < form.n_operands; ++i) {
        p.bases[i] = form.bases[i].evaluate(r);
    }
    if (form.has_result) {
        p.result_base = form.result_base.evaluate(r);
    }
    if (p.n > 0) {
        for (std::size_t i = 0; i < form.n_operands; ++i) {
            check_vector("vector operand", p, p.bases[i], form.layouts[i]);
        }
        if (form.has_result) {
            check_vector("vector result", p, p.result_base, form.result_layout);
        }
    }
    for (std::size_t i = 0; i < form.n_scalars; ++i) {
        const isa::ScalarWord& scalar = form.scalars[i];
        switch (scalar.kind) {
            case isa::ScalarKind::f32:
                p.scalars[i] = std::bit_cast<float>(scalar.value);
                break;
            case isa::ScalarKind::shared_f32:
                p.scalars[i] = std::bit_cast<float>(sink_.load_shared(static_cast<int>(scalar.value)));
                break;
            case isa::ScalarKind::register_i32:
                p.scalars[i] = static_cast<float>(r[scalar.value]);
                break;
            case isa::ScalarKind::shared_i32:
                p.scalars[i] = static_cast<float>(sink_.load_shared(static_cast<int>(scalar.value)));
                break;
        }
    }
    charge(static_cast<std::uint64_t>(p.n) * (1U + form.n_operations) / operations_an_instruction);
    sink_.pass(p);
}

template <class Sink>
void StreamRunner<Sink>::link_transfer(const Operation& op) {
    const std::int32_t* const r = registers_.data();
    TransferCommand t{};
    t.opcode = op.opcode;
    t.instruction = pc_;
    t.scratch = op.operands[0].evaluate(r);
    t.stride = op.operands[1].evaluate(r);
    t.blocks = std::max(op.operands[2].evaluate(r), 0);
    t.bytes = std::max(op.operands[3].evaluate(r), 0);
    if (t.blocks == 0 || t.bytes == 0) {  // does nothing, so its host address does not matter
        t.blocks = t.bytes = 0;
        return sink_.transfer(t);
    }
    const std::int64_t slot = argument_base_ + op.field;
    const auto low = static_cast<std::uint32_t>(sink_.load_word(word_address(slot), pc_));
    const auto high = static_cast<std::uint32_t>(sink_.load_word(word_address(slot + 1), pc_));
    const std::int64_t offset = op.operands[4].evaluate(r);
    t.host = (std::uint64_t{high} << 32 | low) + static_cast<std::uint64_t>(offset);
    if (t.bytes > machine_.scratch_bytes()) [[unlikely]] {
        fault("a block of " + std::to_string(t.bytes) + " bytes exceeds scratch (" + std::to_string(machine_.scratch_bytes()) + ")");
    }
    charge(static_cast<std::uint64_t>(t.blocks) * static_cast<std::uint64_t>(t.bytes) / bytes_an_instruction);
    sink_.transfer(t);
}

}  // namespace wordline
