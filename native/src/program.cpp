#include "wordline/program.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "wordline/error.hpp"

namespace wordline {
namespace {

constexpr std::size_t header_bytes = 8, stream_bytes = 16, max_streams = 64;
constexpr std::uint8_t first_writable_register = 2;  // r0 is zero, r1 the channel number

[[noreturn]] void bad(const std::string& what, const std::string& where = {}) {
    throw Error("bad-program", "the program image is malformed: " + what, where, "recompile the artifact");
}

template <class T>
T read_little(const std::byte* at) {
    static_assert(std::endian::native == std::endian::little, "images are little endian");
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::uint32_t all_channels(const Machine& machine) { return ~std::uint32_t{0} >> (32 - machine.organisation.channels); }

class StreamParser {
public:
    StreamParser(Stream& stream, const Machine& machine, std::size_t number, const std::uint64_t* words, std::size_t count)
        : stream_(stream), machine_(machine), number_(number), words_(words), count_(count) {}

    void parse() {
        std::vector<std::uint32_t> loop_ends;  // of the loops that are open at the current instruction
        while (at_ < count_) {
            const auto index = static_cast<std::uint32_t>(stream_.operations.size());
            while (!loop_ends.empty() && loop_ends.back() == index) {
                loop_ends.pop_back();
            }
            stream_.operations.push_back(instruction());
            Operation& op = stream_.operations.back();
            if (op.opcode == Opcode::Loop) {
                op.extra += index + 1;
                if (!loop_ends.empty() && op.extra > loop_ends.back()) {
                    fail("a loop body reaches beyond the enclosing loop");
                }
                if (op.extra > index + 1) {
                    loop_ends.push_back(op.extra);
                    if (loop_ends.size() > static_cast<std::size_t>(machine_.command_processor.loop_depth)) {
                        fail("loops nest deeper than " + std::to_string(machine_.command_processor.loop_depth));
                    }
                }
                deepest_end_ = std::max(deepest_end_, op.extra);
            }
        }
        if (deepest_end_ > stream_.operations.size()) {
            fail("a loop body reaches beyond the end of the stream");
        }
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        bad(what, "stream " + std::to_string(number_) + ", word " + std::to_string(start_));
    }

    isa::Affine checked(const isa::Affine& operand) const {
        const std::int32_t registers = machine_.command_processor.registers;
        if (operand.reg0 >= registers || operand.reg1 >= registers) {
            fail("a register is outside 0.." + std::to_string(registers - 1));
        }
        return operand;
    }

    Operation instruction() {
        start_ = at_;
        const std::uint64_t* const words = words_ + at_;
        const std::size_t length = isa::word_count(words[0]);
        const auto opcode = static_cast<Opcode>(words[0] & 0xFF);
        if (length == 0) {
            fail("unknown opcode " + std::to_string(words[0] & 0xFF));
        }
        if (!isa::runs_on(opcode, stream_.engine)) {
            fail(std::string(isa::name(opcode)) + " does not belong into this kind of stream");
        }
        if (isa::stated_word_count(words[0]) != length || length > count_ - at_) {
            fail(std::string(isa::name(opcode)) + " says " + std::to_string(isa::stated_word_count(words[0])) + " words, needs " +
                 std::to_string(length) + ", " + std::to_string(count_ - at_) + " remain");
        }
        Operation op;
        op.opcode = opcode;
        if (isa::writes_register(opcode)) {
            op.rd = isa::Gets::decode(words).rd;  // every one of them has it first
            if (op.rd < first_writable_register || op.rd >= machine_.command_processor.registers) {
                fail("register " + std::to_string(op.rd) + " cannot be written");
            }
        }
        switch (opcode) {
            case Opcode::Loop:
                op.extra = isa::Loop::decode(words).body;
                break;
            case Opcode::Wait:
            case Opcode::Signal:
                op.field = isa::Signal::decode(words).signal;
                if (op.field >= machine_.command_processor.signals) {
                    fail("signal " + std::to_string(op.field) + " does not exist");
                }
                break;
            case Opcode::Gets:
                op.field = isa::Gets::decode(words).shared;
                check_shared(op.field);
                break;
            case Opcode::Tmod:
                op.field = isa::Tmod::decode(words).mode;
                break;
            case Opcode::Ref:
                op.field = isa::Ref::decode(words).when;
                break;
            case Opcode::Wrmac16:
                op.field = isa::Wrmac16::decode(words).advance;
                break;
            case Opcode::Xout:
            case Opcode::Xin:
                op.field = isa::Xout::decode(words).slot;
                break;
            default:
                break;
        }
        if (opcode == Opcode::Vpass) {
            op.extra = static_cast<std::uint32_t>(stream_.passes.size());
            stream_.passes.push_back(pass(isa::Vpass::decode(words)));
        } else {
            for (std::size_t i = 1; i < length; ++i) {
                op.operands[i - 1] = checked(isa::Affine::decode(words[i]));
            }
        }
        at_ += length;
        return op;
    }

    void check_shared(std::uint32_t shared) const {
        if (shared >= static_cast<std::uint32_t>(machine_.command_processor.shared_registers)) {
            fail("shared register " + std::to_string(shared) + " does not exist");
        }
    }

    isa::LayoutWord checked(const isa::LayoutWord& layout, bool result) const {
        if (layout.dtype > (result ? isa::Dtype::f32 : isa::Dtype::i32)) {
            fail(result ? "a pass stores bf16 or f32" : "unknown element format");
        }
        return layout;
    }

    std::uint8_t value(std::uint8_t number, const PassForm& form, std::size_t operations) const {
        const bool exists = number < isa::first_scalar_value   ? number < form.n_operands
                            : number < isa::first_result_value ? number - isa::first_scalar_value < form.n_scalars
                                                               : number - isa::first_result_value < static_cast<int>(operations);
        if (!exists) {
            fail("value " + std::to_string(number) + " does not exist where it is used");
        }
        return number;
    }

    std::uint8_t counted(const char* what, std::uint8_t count, std::int32_t machine_limit, std::size_t limit) const {
        if (count > std::min(machine_limit, static_cast<std::int32_t>(limit))) {
            fail("a pass has " + std::to_string(count) + " " + what + ", the machine allows " +
                 std::to_string(std::min(machine_limit, static_cast<std::int32_t>(limit))));
        }
        return count;
    }

    PassForm pass(const isa::Vpass& v) const {
        const Machine::VectorUnit& unit = machine_.vector_unit;
        PassForm form;
        form.n_operands = counted("operands", v.n_operands, unit.max_operands, max_pass_operands);
        form.n_scalars = counted("scalars", v.n_scalars, unit.max_scalars, max_pass_scalars);
        form.n_operations = counted("operations", v.n_operations, unit.max_ops, max_pass_operations);
        form.n_reductions = counted("reductions", v.n_reductions, unit.max_reductions, max_pass_reductions);
        form.has_result = v.n_results != 0;
        form.extents = {checked(v.n0), checked(v.n1), checked(v.n2), checked(v.low), checked(v.high)};
        for (std::size_t i = 0; i < form.n_operands; ++i) {
            form.bases[i] = checked(v.operands[i].base);
            form.layouts[i] = checked(v.operands[i].layout, false);
        }
        for (std::size_t i = 0; i < form.n_scalars; ++i) {
            form.scalars[i] = v.scalars[i];
            if (v.scalars[i].kind == isa::ScalarKind::register_i32) {
                if (v.scalars[i].value >= static_cast<std::uint32_t>(machine_.command_processor.registers)) {
                    fail("register " + std::to_string(v.scalars[i].value) + " does not exist");
                }
            } else if (v.scalars[i].kind != isa::ScalarKind::f32) {
                check_shared(v.scalars[i].value);
            }
        }
        for (std::size_t i = 0; i < form.n_operations; ++i) {
            const isa::OperationWord& from = v.operations[i];
            const auto code = static_cast<std::size_t>(from.op);
            if (code >= isa::vector_op_arity.size()) {
                fail("unknown vector operation " + std::to_string(code));
            }
            const int arity = isa::vector_op_arity[code];
            const std::uint8_t first = value(from.a, form, i);
            form.operations[i] = {from.op, first, arity >= 2 ? value(from.b, form, i) : first, arity >= 3 ? value(from.c, form, i) : first};
        }
        if (form.has_result) {
            form.result_base = checked(v.result[0].base);
            form.result_layout = checked(v.result[0].layout, true);
            form.result_target = v.result[0].broadcast;
            if ((form.result_target.channels & ~all_channels(machine_)) != 0) {
                fail("the result goes to channels that the machine does not have");
            }
            value(form.result_target.value, form, form.n_operations);
        }
        for (std::size_t i = 0; i < form.n_reductions; ++i) {
            form.reductions[i] = v.reductions[i];
            if (v.reductions[i].kind > isa::Reduction::argmax) {
                fail("unknown reduction");
            }
            value(v.reductions[i].value, form, form.n_operations);
            check_shared(v.reductions[i].shared);
        }
        return form;
    }

    Stream& stream_;
    const Machine& machine_;
    std::size_t number_;
    const std::uint64_t* words_;
    std::size_t count_;
    std::size_t at_ = 0, start_ = 0;
    std::uint32_t deepest_end_ = 0;
};

void check_engine(const Stream& stream, const Program& earlier, const Machine& machine, std::size_t number) {
    const std::string where = "stream " + std::to_string(number);
    std::uint32_t taken = 0;
    for (const Stream& other : earlier.streams) {
        if (other.engine == stream.engine) {
            if (stream.engine != Engine::channel) {
                bad("more than one vector or link stream", where);
            }
            taken |= other.channel_mask;
        }
    }
    if (stream.engine == Engine::channel) {
        if (stream.channel_mask == 0 || (stream.channel_mask & ~all_channels(machine)) != 0) {
            bad("the channel mask names no channel, or channels that the machine does not have", where);
        }
        if ((stream.channel_mask & taken) != 0) {
            bad("two streams for one channel", where);
        }
    } else if (stream.channel_mask != 0) {
        bad("a vector or link stream has no channel mask", where);
    } else if (stream.engine == Engine::vector && !machine.vector_unit.present) {
        bad("a vector stream, but the machine has no vector unit", where);
    }
}

}  // namespace

Program Program::parse(std::span<const std::byte> image, const Machine& machine) {
    if (image.size() < header_bytes) {
        bad("shorter than its header");
    }
    if (std::memcmp(image.data(), "WLPG", 4) != 0) {
        bad("wrong magic");
    }
    if (const auto version = read_little<std::uint16_t>(image.data() + 4); version != isa::version) {
        bad("instruction-set version " + std::to_string(version) + ", this build has " + std::to_string(isa::version));
    }
    const std::size_t count = read_little<std::uint16_t>(image.data() + 6);
    const std::size_t base = header_bytes + count * stream_bytes;
    if (count > max_streams || image.size() < base || (image.size() - base) % 8 != 0) {
        bad(std::to_string(count) + " streams do not fit " + std::to_string(image.size()) + " bytes");
    }
    if (image.size() - base > static_cast<std::uint64_t>(machine.command_processor.instruction_memory_bytes)) {
        throw Error("program-too-large",
                    "the program has " + std::to_string(image.size() - base) + " bytes of instructions, the device holds " +
                        std::to_string(machine.command_processor.instruction_memory_bytes));
    }
    std::vector<std::uint64_t> words((image.size() - base) / 8);
    if (!words.empty()) {
        std::memcpy(words.data(), image.data() + base, image.size() - base);
    }
    Program program;
    program.producer.fill(-1);
    program.image_words = words.size();
    std::size_t expected = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::byte* const entry = image.data() + header_bytes + i * stream_bytes;
        const auto engine = read_little<std::uint32_t>(entry);
        const std::size_t first = read_little<std::uint32_t>(entry + 8), length = read_little<std::uint32_t>(entry + 12);
        if (engine > 2 || first != expected || first + length > words.size()) {
            bad("engine " + std::to_string(engine) + ", words " + std::to_string(first) + ".." + std::to_string(first + length) + " of " +
                    std::to_string(words.size()),
                "stream " + std::to_string(i));
        }
        expected = first + length;
        Stream stream;
        stream.engine = static_cast<Engine>(engine);
        stream.channel_mask = read_little<std::uint32_t>(entry + 4);
        check_engine(stream, program, machine, i);
        StreamParser(stream, machine, i, words.data() + first, length).parse();
        for (const Operation& op : stream.operations) {
            if (op.opcode == Opcode::Signal) {
                std::int32_t& producer = program.producer[op.field];
                if (producer >= 0 && producer != static_cast<std::int32_t>(i)) {
                    bad("signal " + std::to_string(op.field) + " is produced by streams " + std::to_string(producer) + " and " + std::to_string(i));
                }
                producer = static_cast<std::int32_t>(i);
            }
        }
        program.streams.push_back(std::move(stream));
    }
    for (std::size_t i = 0; i < count; ++i) {
        for (const Operation& op : program.streams[i].operations) {
            if (op.opcode == Opcode::Wait && program.producer[op.field] < 0) {
                bad("no stream produces signal " + std::to_string(op.field) + ": the wait never ends", "stream " + std::to_string(i));
            }
        }
    }
    if (expected != words.size()) {
        bad(std::to_string(words.size() - expected) + " words belong to no stream");
    }
    return program;
}

}  // namespace wordline
