// The simulated device behind the device interface (src/wordline/runtime/device_interface.py): registers, rings, descriptors. Values come from
// the functional model, cycles from the timing model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "wordline/device_interface.hpp"
#include "wordline/functional.hpp"
#include "wordline/program_store.hpp"
#include "wordline/timing.hpp"
#include "wordline/timing_memo.hpp"

namespace wordline {

class SimDevice {
public:
    // `machine_hash`: 64 hex digits, reported in the MACHINE_HASH registers. Throws Error.
    SimDevice(const Machine& machine, const std::string& machine_hash, int threads, SimdVariant variant);

    // Registers that do not exist read 0; writes to them and to read-only registers have no effect.
    std::uint32_t mmio_read(std::uint32_t offset) const;
    void mmio_write(std::uint32_t offset, std::uint32_t value);

    std::uint64_t map_host(std::span<std::byte> memory, bool writable) { return model_.windows().map(memory, writable); }
    bool unmap_host(std::uint64_t address) { return model_.windows().unmap(address); }

    // Answers all descriptors up to the doorbell; false when there was none. Nothing that the host writes makes it throw; Interrupted is thrown
    // as the caller's InterruptionScope wants, when the run that it ends has been answered with a fault.
    bool advance();

    const std::string& fault_text() const { return text_; }
    const std::optional<TimingResult>& last_profile() const { return profile_; }

private:
    struct Failure;

    void reset();
    std::uint32_t& at(device_interface::Register reg) { return registers_[static_cast<std::size_t>(reg) / 4]; }
    std::uint64_t pair(device_interface::Register low) const;
    bool answer(std::uint32_t index);
    void stop(device_interface::ErrorCode code, const std::string& text);
    void dispatch(const device_interface::Descriptor& d);
    void bank_transfer(const device_interface::Descriptor& d, bool write);
    void memory_transfer(const device_interface::Descriptor& d, bool write);
    void load_program(const device_interface::Descriptor& d);
    void execute(const device_interface::Descriptor& d);
    std::byte* host(std::uint64_t address, std::uint64_t bytes, bool write) const;

    FunctionalModel model_;
    TimingModel timing_;
    ProgramStore programs_;
    std::map<std::uint64_t, TimingMemo> memos_;  // by slot
    std::array<std::uint32_t, 27> registers_{};
    std::uint64_t cycles_ = 0;
    std::string text_;
    bool interrupted_ = false;  // advance() still has to say so
    std::optional<TimingResult> profile_;
};

}  // namespace wordline
