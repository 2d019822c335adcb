// What channels need not simulate again: the stretches of a channel stream between two waits in which channels that are in the same state
// do the same.
//
// After a WAIT channels are usually in step, and most of a stream neither reads the channel number nor values that follow from it. A
// channel that reaches such a segment in a state from which another has gone through it already takes over what that one did.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "wordline/channel_timing.hpp"
#include "wordline/program.hpp"

namespace wordline {

// Instructions first .. last - 1; `first` follows a WAIT outside all loops, `last` is the next WAIT or the end of the stream.
struct Segment {
    std::uint32_t first = 0, last = 0;
    std::uint32_t live = 0;     // registers whose value at `first` matters there or later, bit by number
    std::uint32_t written = 0;  // registers that the segment may write
};

using Registers = std::array<std::int32_t, 32>;

// The segments of a stream in which nothing depends on the channel's number, by the position of their WAIT.
std::map<std::uint32_t, Segment> independent_segments(const Stream& stream);

// What one channel did in a segment.
struct SegmentRun {
    ChannelTiming start, end;
    Registers start_registers, end_registers;
    std::vector<std::pair<std::uint32_t, CauseCycles>> causes;  // added to these instructions
    std::vector<std::pair<int, std::int64_t>> signals;          // signal, cycle of its effect
};

// All runs so far of the segments of one stream.
class SegmentTable {
public:
    explicit SegmentTable(const Stream& stream) : segments_(independent_segments(stream)) {}

    // The segment after the WAIT at this position; null if there is none.
    const Segment* after_wait(std::uint32_t position) const;
    // The first WAIT at or after `position` that a segment follows; the end of the stream if there is none.
    std::uint32_t next_wait(std::uint32_t position, std::uint32_t end) const;

    // A run that started as this channel does; null if there is none.
    const SegmentRun* find(const Segment& segment, const ChannelTiming& timing, const Registers& registers) const;
    void add(const Segment& segment, SegmentRun run) { runs_[segment.first].push_back(std::move(run)); }

private:
    std::map<std::uint32_t, Segment> segments_;
    std::map<std::uint32_t, std::vector<SegmentRun>> runs_;
};

}  // namespace wordline
