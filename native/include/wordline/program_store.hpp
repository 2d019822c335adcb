// The programs in a device's instruction memory, by slot.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "wordline/program.hpp"

namespace wordline {

// Throws Error("bad-slot", "bad-program", "program-too-large").
class ProgramStore {
public:
    explicit ProgramStore(const Machine& machine) : machine_(machine) {}
    int load(std::span<const std::byte> image);  // into the lowest free slot
    void load(std::size_t slot, std::span<const std::byte> image);
    void unload(std::size_t slot);
    void clear() { slots_.clear(); }
    bool holds(std::size_t slot) const { return slot < slots_.size() && slots_[slot] != nullptr; }
    const Program& get(std::size_t slot) const;

private:
    const Machine& machine_;
    std::vector<std::unique_ptr<const Program>> slots_;
};

}  // namespace wordline
