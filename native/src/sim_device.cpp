#include "wordline/sim_device.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "wordline/error.hpp"
#include "wordline/text.hpp"

namespace wordline {

using device_interface::Capability;
using device_interface::Completion;
using device_interface::Descriptor;
using device_interface::ErrorCode;
using device_interface::ExecuteFlag;
using device_interface::Register;
using device_interface::Status;

// Ends a descriptor.
struct SimDevice::Failure {
    ErrorCode code;
    std::string text;
    std::uint64_t detail = 0;
};

namespace {

std::uint64_t place(const Fault& fault) {
    return static_cast<std::uint64_t>(fault.stream) << 48 | static_cast<std::uint64_t>(fault.channel) << 32 | fault.instruction;
}

bool within(std::uint64_t first, std::uint64_t count, std::uint64_t limit) { return first <= limit && count <= limit - first; }

}  // namespace

SimDevice::SimDevice(const Machine& machine, const std::string& machine_hash, int threads, SimdVariant variant)
    : model_(machine, threads, variant), timing_(machine), programs_(model_.machine()) {
    if (machine_hash.size() != 64 || machine_hash.find_first_not_of("0123456789abcdef") != std::string::npos) {
        throw Error("bad-machine", "the machine hash must be 64 hexadecimal digits");
    }
    at(Register::kId) = device_interface::kDeviceId;
    at(Register::kInterfaceVersion) = device_interface::kInterfaceVersion;
    at(Register::kCaps) = static_cast<std::uint32_t>(Capability::kFunctional) | static_cast<std::uint32_t>(Capability::kTiming);
    at(Register::kChannels) = static_cast<std::uint32_t>(machine.organisation.channels);
    at(Register::kRows) = static_cast<std::uint32_t>(machine.organisation.rows);
    at(Register::kCmemWords) = static_cast<std::uint32_t>(machine.controller_words());
    for (std::size_t word = 0; word < 8; ++word) {
        registers_[static_cast<std::size_t>(Register::kMachineHash) / 4 + word] =
            static_cast<std::uint32_t>(std::stoul(machine_hash.substr(8 * word, 8), nullptr, 16));
    }
}

std::uint32_t SimDevice::mmio_read(std::uint32_t offset) const {
    return offset % 4 == 0 && offset / 4 < registers_.size() ? registers_[offset / 4] : 0;
}

void SimDevice::mmio_write(std::uint32_t offset, std::uint32_t value) {
    switch (static_cast<Register>(offset)) {
        case Register::kReset:
            reset();
            break;
        case Register::kRingBaseLo:
        case Register::kRingBaseHi:
        case Register::kCompletionBaseLo:
        case Register::kCompletionBaseHi:
        case Register::kRingEntries:
        case Register::kRingTail:
            registers_[offset / 4] = value;
            break;
        default:
            break;
    }
}

void SimDevice::reset() {
    model_.reset();
    programs_.clear();
    memos_.clear();
    cycles_ = 0;
    text_.clear();
    profile_.reset();
    for (const Register reg : {Register::kRingHead, Register::kRingTail, Register::kCompletionTail, Register::kError, Register::kCyclesLo,
                               Register::kCyclesHi, Register::kStatus}) {
        at(reg) = 0;
    }
}

std::uint64_t SimDevice::pair(Register low) const {
    const std::size_t index = static_cast<std::size_t>(low) / 4;
    return std::uint64_t{registers_[index + 1]} << 32 | registers_[index];
}

void SimDevice::stop(ErrorCode code, const std::string& text) {
    at(Register::kStatus) = static_cast<std::uint32_t>(Status::kFault);
    at(Register::kError) = static_cast<std::uint32_t>(code);
    text_ = text;
}

bool SimDevice::advance() {
    bool any = false;
    while (at(Register::kRingHead) != at(Register::kRingTail) && answer(at(Register::kRingHead))) {
        ++at(Register::kRingHead);
        any = true;
        if (std::exchange(interrupted_, false)) {
            throw Interrupted{};
        }
    }
    return any;
}

// Answers one descriptor; false when the rings themselves are unusable, so that there is nowhere to answer.
bool SimDevice::answer(std::uint32_t index) {
    const std::uint32_t entries = at(Register::kRingEntries);
    if (!std::has_single_bit(entries) || at(Register::kRingTail) - index > entries) {
        stop(ErrorCode::kBadDescriptor, "the ring has " + std::to_string(entries) + " entries and its tail is " +
                                            std::to_string(at(Register::kRingTail) - index) + " ahead");
        return false;
    }
    const std::uint64_t slot = index & (entries - 1);
    const std::byte* const source = model_.windows().find(pair(Register::kRingBaseLo) + slot * sizeof(Descriptor), sizeof(Descriptor), false);
    std::byte* const target = model_.windows().find(pair(Register::kCompletionBaseLo) + slot * sizeof(Completion), sizeof(Completion), true);
    if (source == nullptr || target == nullptr) {
        stop(ErrorCode::kBadWindow, "a ring lies in no open window");
        return false;
    }
    Descriptor descriptor;
    std::memcpy(&descriptor, source, sizeof descriptor);
    Completion completion{descriptor.tag, 0, cycles_, 0, 0};
    try {
        if (at(Register::kStatus) == static_cast<std::uint32_t>(Status::kFault)) {
            throw Failure{ErrorCode::kAborted, text_};
        }
        dispatch(descriptor);
    } catch (const Interrupted&) {  // answered like a fault: what the program did to memory is half done
        interrupted_ = true;
        profile_.reset();
        completion.status = static_cast<std::uint32_t>(ErrorCode::kFault);
        stop(ErrorCode::kFault, "the run was interrupted");
    } catch (const Failure& failure) {
        completion.status = static_cast<std::uint32_t>(failure.code);
        completion.detail = failure.detail;
        text_ = failure.text;
        at(Register::kError) = completion.status;
        if (failure.code == ErrorCode::kFault) {
            at(Register::kStatus) = static_cast<std::uint32_t>(Status::kFault);
        }
    }
    completion.end_cycle = cycles_;
    std::memcpy(target, &completion, sizeof completion);
    at(Register::kCyclesLo) = static_cast<std::uint32_t>(cycles_);
    at(Register::kCyclesHi) = static_cast<std::uint32_t>(cycles_ >> 32);
    at(Register::kCompletionTail) = index + 1;
    return true;
}

std::byte* SimDevice::host(std::uint64_t address, std::uint64_t bytes, bool write) const {
    std::byte* const found = model_.windows().find(address, bytes, write);
    if (found == nullptr) {
        throw Failure{ErrorCode::kBadWindow, "host bytes " + hexadecimal(address) + "+" + hexadecimal(bytes) + " are in no open window"};
    }
    return found;
}

void SimDevice::dispatch(const Descriptor& d) {
    switch (static_cast<device_interface::Opcode>(d.opcode)) {
        case device_interface::Opcode::kFence:
            return;
        case device_interface::Opcode::kBankWrite:
            return bank_transfer(d, true);
        case device_interface::Opcode::kBankRead:
            return bank_transfer(d, false);
        case device_interface::Opcode::kBankFill: {
            const auto [first, rows, mask] = std::tuple(d.operand[0], d.operand[1], d.operand[2]);
            if (!within(first, rows, at(Register::kRows))) {
                throw Failure{ErrorCode::kOutOfRange, "rows " + std::to_string(first) + "+" + std::to_string(rows) + " do not exist"};
            }
            if (mask >> at(Register::kChannels) != 0) {
                throw Failure{ErrorCode::kOutOfRange, "channel mask " + hexadecimal(mask) + " names channels that do not exist"};
            }
            return model_.bank_fill_zero(static_cast<std::int32_t>(first), static_cast<std::int32_t>(rows), static_cast<std::uint32_t>(mask));
        }
        case device_interface::Opcode::kCmemWrite:
            return memory_transfer(d, true);
        case device_interface::Opcode::kCmemRead:
            return memory_transfer(d, false);
        case device_interface::Opcode::kLoadProgram:
            return load_program(d);
        case device_interface::Opcode::kUnloadProgram:
            if (!programs_.holds(d.operand[0])) {
                throw Failure{ErrorCode::kBadSlot, "slot " + std::to_string(d.operand[0]) + " holds no program"};
            }
            memos_.erase(d.operand[0]);
            return programs_.unload(d.operand[0]);
        case device_interface::Opcode::kExecute:
            return execute(d);
    }
    throw Failure{ErrorCode::kBadDescriptor, "there is no operation " + std::to_string(d.opcode)};
}

void SimDevice::bank_transfer(const Descriptor& d, bool write) {
    const std::uint64_t first = d.operand[1], rows = d.operand[2];
    if (!within(first, rows, at(Register::kRows))) {
        throw Failure{ErrorCode::kOutOfRange, "rows " + std::to_string(first) + "+" + std::to_string(rows) + " do not exist"};
    }
    std::byte* const data = host(d.operand[0], rows * model_.row_bytes(), !write);
    if (write) {
        model_.bank_write(static_cast<std::int32_t>(first), static_cast<std::int32_t>(rows), data);
    } else {
        model_.bank_read(static_cast<std::int32_t>(first), static_cast<std::int32_t>(rows), data);
    }
}

void SimDevice::memory_transfer(const Descriptor& d, bool write) {
    const std::uint64_t first = d.operand[1], words = d.operand[2];
    if (!within(first, words, model_.controller_memory().size())) {
        throw Failure{ErrorCode::kOutOfRange, "words " + std::to_string(first) + "+" + std::to_string(words) + " do not exist"};
    }
    std::byte* const data = host(d.operand[0], 4 * words, !write);
    std::int32_t* const memory = model_.controller_memory().data() + first;
    if (write) {
        std::memcpy(memory, data, 4 * words);
    } else {
        std::memcpy(data, memory, 4 * words);
    }
}

void SimDevice::load_program(const Descriptor& d) {
    const std::uint64_t bytes = d.operand[1], slot = d.operand[2];
    if (slot >= device_interface::kProgramSlots || programs_.holds(slot)) {
        throw Failure{ErrorCode::kBadSlot, "slot " + std::to_string(slot) + " does not exist or is taken"};
    }
    const std::byte* const image = host(d.operand[0], bytes, false);
    try {
        programs_.load(slot, {image, static_cast<std::size_t>(bytes)});
    } catch (const Error& error) {
        throw Failure{ErrorCode::kBadProgram, error.where.empty() ? error.what() : std::string(error.what()) + " (" + error.where + ")"};
    }
}

void SimDevice::execute(const Descriptor& d) {
    const std::uint64_t slot = d.operand[0], argument_base = d.operand[1];
    if (!programs_.holds(slot)) {
        throw Failure{ErrorCode::kBadSlot, "slot " + std::to_string(slot) + " holds no program"};
    }
    if (argument_base >= model_.controller_memory().size()) {
        throw Failure{ErrorCode::kOutOfRange, "argument base " + std::to_string(argument_base) + " is outside controller memory"};
    }
    const Program& program = programs_.get(slot);
    const auto base = static_cast<std::int64_t>(argument_base);
    profile_.reset();
    try {
        if ((d.flags & static_cast<std::uint32_t>(ExecuteFlag::kTiming)) != 0) {  // first: it needs the memory as it is at the start
            const std::span<const std::int32_t> memory(model_.controller_memory().data(), model_.controller_memory().size());
            profile_ = timing_.run(program, base, memory, {}, &memos_.try_emplace(slot, program).first->second);
        }
        if ((d.flags & static_cast<std::uint32_t>(ExecuteFlag::kFunctional)) != 0) {
            model_.execute(program, base);
        }
    } catch (const Fault& fault) {
        profile_.reset();
        throw Failure{ErrorCode::kFault, fault.what(), place(fault)};
    }
    if (profile_) {
        cycles_ += static_cast<std::uint64_t>(profile_->cycles);
    }
}

}  // namespace wordline
