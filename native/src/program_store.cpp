#include "wordline/program_store.hpp"

#include <string>
#include <utility>

#include "wordline/error.hpp"

namespace wordline {

int ProgramStore::load(std::span<const std::byte> image) {
    std::size_t slot = 0;
    while (holds(slot)) {
        ++slot;
    }
    load(slot, image);
    return static_cast<int>(slot);
}

void ProgramStore::load(std::size_t slot, std::span<const std::byte> image) {
    if (holds(slot)) {
        throw Error("bad-slot", "slot " + std::to_string(slot) + " holds a program already");
    }
    auto program = std::make_unique<const Program>(Program::parse(image, machine_));
    std::size_t bytes = program->image_words * 8;
    for (const auto& other : slots_) {
        bytes += other ? other->image_words * 8 : 0;
    }
    if (bytes > static_cast<std::uint64_t>(machine_.command_processor.instruction_memory_bytes)) {
        throw Error("program-too-large", "all loaded programs together have " + std::to_string(bytes) + " bytes of instructions, the device holds " +
                                             std::to_string(machine_.command_processor.instruction_memory_bytes));
    }
    if (slot >= slots_.size()) {
        slots_.resize(slot + 1);
    }
    slots_[slot] = std::move(program);
}

void ProgramStore::unload(std::size_t slot) {
    get(slot);
    slots_[slot].reset();
}

const Program& ProgramStore::get(std::size_t slot) const {
    if (!holds(slot)) {
        throw Error("bad-slot", "slot " + std::to_string(slot) + " holds no program");
    }
    return *slots_[slot];
}

}  // namespace wordline
