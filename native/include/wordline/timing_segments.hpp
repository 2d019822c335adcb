// What of a stream need not be simulated again, found before it runs: stretches between two waits, and what they depend on.
//
// What an engine does in such a segment follows from its state, from registers and from words of controller memory; most operands (columns,
// scratch offsets) do not matter for time. `timing_memo.hpp` keeps what is known of each segment.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "wordline/program.hpp"

namespace wordline {

using Registers = std::array<std::int32_t, 32>;
constexpr std::uint8_t channel_number_register = 1;

// Instructions first .. last - 1, outside all loops: after a WAIT or SIGNAL (or the start of the stream), up to the next WAIT or with the next SIGNAL.
struct Segment {
    std::uint32_t first = 0, last = 0;
    std::uint32_t inputs = 0;   // registers whose value at `first` matters for what the segment does or leaves, bit by number
    std::uint32_t written = 0;  // registers that the segment may write
    std::uint32_t shape = 0;    // channel streams: the same for segments that take the same time on the same path
    bool by_channel = false;    // inputs may matter that are not known before: every channel keeps courses of its own
    std::array<std::uint8_t, 32> input_shift{};  // of the value v of an input only v >> shift matters, unless one of some loops is entered
};

// Which operands of a channel instruction a path names: counts and banks that may differ from run to run, and every row.
struct PathOperands {
    bool count = false, bank = false, row = false;
    bool uses_whole = false;  // LOOPs: there are loads or inputs of which all bits matter when it is entered
};

struct StreamSegments {
    // Segments that neither store to controller memory nor wait inside loops, in order.
    std::vector<Segment> segments;
    // By instruction. Loads of controller memory: of the value v only v >> shift matters, unless one of some loops is entered.
    std::vector<std::uint8_t> load_shift;
    std::vector<bool> load_leaves;  // the register keeps the word to the end of the segment and beyond
    // By LOOP: the loads, and the inputs, of which all bits matter when it is entered.
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> loads_used_in;
    std::unordered_map<std::uint32_t, std::vector<std::uint8_t>> inputs_used_in;
    std::vector<PathOperands> path;        // channel streams; LOOPs have a count
    std::uint32_t shapes = 0;
};

StreamSegments find_segments(const Stream& stream);

}  // namespace wordline
