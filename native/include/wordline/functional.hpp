// The functional model: computes every value of a device program bit-exactly, without time.
//
// Each worker thread owns a share of the channels; the vector and the link stream run on the first worker. Streams meet at signals only, so a
// race-free program gives the same bits for any number of threads. A fault ends its stream; the others go on until they end or wait for it,
// which makes the fault that is reported (lowest stream, then lowest channel) independent of the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "wordline/command_processor.hpp"
#include "wordline/kernels.hpp"
#include "wordline/memory.hpp"
#include "wordline/vector_unit.hpp"
#include "wordline/workers.hpp"

namespace wordline {

class FunctionalModel {
public:
    // `threads` >= 1; more threads than channels are not used. Throws Error("out-of-memory").
    FunctionalModel(const Machine& machine, int threads, SimdVariant variant);

    // Bank rows in image order: uint16 [row][channel][bank][column][lane]. The caller has checked the rows and sizes.
    void bank_write(std::int32_t first_row, std::int32_t rows, const std::byte* data);
    void bank_read(std::int32_t first_row, std::int32_t rows, std::byte* data);
    void bank_fill_zero(std::int32_t first_row, std::int32_t rows, std::uint32_t channel_mask);

    // Runs a program to its end. Throws Fault, and Interrupted as the caller's InterruptionScope wants; memories then hold what was done before.
    void execute(const Program& program, std::int64_t argument_base, std::uint64_t instruction_limit = no_instruction_limit);

    // Reads `rows` rows of all channels with all threads; returns a checksum. For measuring the speed of memory.
    std::uint32_t read_stream(std::int32_t first_row, std::int32_t rows);

    // All memories zero again; host windows stay.
    void reset();

    const Machine& machine() const { return machine_; }
    std::size_t row_bytes() const;  // of one row of all banks and channels
    AlignedArray<std::byte>& scratch() { return scratch_; }
    AlignedArray<std::int32_t>& controller_memory() { return controller_memory_; }
    AlignedArray<std::int32_t>& shared_registers() { return shared_; }
    HostWindows& windows() { return windows_; }
    const HostWindows& windows() const { return windows_; }
    int threads() const { return workers_.count(); }

private:
    friend class FunctionalRun;
    friend class FunctionalSink;

    struct Channel {
        AlignedArray<float> buffer;        // [column][lane], widened
        AlignedArray<float> accumulators;  // [accumulator][bank]
    };

    Machine machine_;
    Kernels kernels_;
    Dram dram_;
    AlignedArray<std::byte> scratch_;
    AlignedArray<std::int32_t> controller_memory_, shared_;
    std::vector<Channel> channels_;
    VectorUnit vector_unit_;
    HostWindows windows_;
    Workers workers_;
};

}  // namespace wordline
