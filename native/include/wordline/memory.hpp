// The memories of the functional model: DRAM, 64-byte aligned arrays, and the host memory that the device may touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <span>

#include "wordline/bank_kernels.hpp"
#include "wordline/machine.hpp"

namespace wordline {

// A zeroed array on a cache-line boundary.
template <class T>
class AlignedArray {
public:
    explicit AlignedArray(std::size_t n) : data_(static_cast<T*>(::operator new(n * sizeof(T), alignment))), size_(n) {
        zero();
    }
    void zero() { std::memset(static_cast<void*>(data_.get()), 0, size_ * sizeof(T)); }
    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    std::size_t size() const { return size_; }

private:
    static constexpr std::align_val_t alignment{64};
    struct Free {
        void operator()(T* p) const { ::operator delete(p, alignment); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t size_;
};

// All rows of all banks, stored as column blocks (bank_kernels.hpp) in the order [channel][row][column]. Zero until written; memory that was
// never written costs nothing.
class Dram {
public:
    // Throws Error("out-of-memory").
    explicit Dram(const Machine::Organisation& organisation);
    ~Dram();
    Dram(const Dram&) = delete;
    Dram& operator=(const Dram&) = delete;

    std::uint32_t* block(std::int32_t channel, std::int32_t row, std::int32_t column) {
        return words_ + ((static_cast<std::size_t>(channel) * rows_ + static_cast<std::size_t>(row)) * columns_ + static_cast<std::size_t>(column)) *
                            block_words;
    }
    void zero_rows(std::int32_t channel, std::int32_t first_row, std::int32_t rows);
    std::size_t bytes() const { return bytes_; }

private:
    std::size_t rows_, columns_, bytes_;
    std::uint32_t* words_;
};

// Host memory by device address. A window is contiguous; different windows never touch, so an access that leaves its window is refused.
class HostWindows {
public:
    std::uint64_t map(std::span<std::byte> memory, bool writable);
    bool unmap(std::uint64_t address);  // false: no window starts there
    // The bytes at `address`, or nullptr when no single window holds all of them (or it is not writable and `write` is set).
    std::byte* find(std::uint64_t address, std::uint64_t bytes, bool write) const;

private:
    struct Window {
        std::span<std::byte> memory;
        bool writable;
    };
    std::map<std::uint64_t, Window> windows_;
    std::uint64_t next_ = std::uint64_t{1} << 32;
};

}  // namespace wordline
