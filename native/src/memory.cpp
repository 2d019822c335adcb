#include "wordline/memory.hpp"

#include <sys/mman.h>

#include <string>

#include "wordline/error.hpp"

namespace wordline {

Dram::Dram(const Machine::Organisation& organisation)
    : rows_(static_cast<std::size_t>(organisation.rows)),
      columns_(static_cast<std::size_t>(organisation.columns)),
      bytes_(static_cast<std::size_t>(organisation.channels) * rows_ * columns_ * block_bytes) {
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        throw Error("out-of-memory", "the system refuses " + std::to_string(bytes_ >> 20) + " MiB of address space for the device's DRAM", {},
                    "raise the limit on address space (ulimit -v) or choose a smaller machine");
    }
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes_, MADV_HUGEPAGE);  // streaming speed only: failure is harmless
#endif
    words_ = static_cast<std::uint32_t*>(memory);
}

Dram::~Dram() { munmap(words_, bytes_); }

void Dram::zero_rows(std::int32_t channel, std::int32_t first_row, std::int32_t rows) {
    constexpr std::size_t page = 4096;
    if (rows == 0) {
        return;
    }
    std::byte* const begin = reinterpret_cast<std::byte*>(block(channel, first_row, 0));
    const std::size_t size = static_cast<std::size_t>(rows) * columns_ * block_bytes;
    // Many rows are handed back to the system, which also makes zeroing rows that were never written free.
    constexpr std::size_t return_from = std::size_t{64} << 20;
    if (size >= return_from && reinterpret_cast<std::uintptr_t>(begin) % page == 0 && size % page == 0 &&
        madvise(begin, size, MADV_DONTNEED) == 0) {
        return;
    }
    std::memset(begin, 0, size);
}

std::uint64_t HostWindows::map(std::span<std::byte> memory, bool writable) {
    const std::uint64_t address = next_;
    next_ += (memory.size() + 2 * 4096) / 4096 * 4096;  // at least one page of gap, so that overruns are seen
    windows_.emplace(address, Window{memory, writable});
    return address;
}

bool HostWindows::unmap(std::uint64_t address) { return windows_.erase(address) != 0; }

std::byte* HostWindows::find(std::uint64_t address, std::uint64_t bytes, bool write) const {
    auto after = windows_.upper_bound(address);
    if (after == windows_.begin()) {
        return nullptr;
    }
    const auto& [base, window] = *--after;
    const std::uint64_t offset = address - base;
    if (offset > window.memory.size() || bytes > window.memory.size() - offset || (write && !window.writable)) {
        return nullptr;
    }
    return window.memory.data() + offset;
}

}  // namespace wordline
