#include "wordline/timing_segments.hpp"

#include <algorithm>
#include <ranges>

namespace wordline {
namespace {

constexpr std::uint32_t channel_number = std::uint32_t{1} << 1;

constexpr std::uint32_t bit(std::uint8_t number) { return number == 0 ? 0 : std::uint32_t{1} << number; }

std::uint32_t reads(const Operation& op) {
    std::uint32_t mask = 0;
    for (const isa::Affine& operand : op.operands) {
        mask |= (operand.stride0 != 0 ? bit(operand.reg0) : 0) | (operand.stride1 != 0 ? bit(operand.reg1) : 0);
    }
    return mask;
}

std::uint32_t writes(const Operation& op) { return isa::writes_register(op.opcode) ? bit(op.rd) : 0; }

// Positions of the instructions first .. last - 1 that are in no loop of that range.
std::vector<std::uint32_t> outside_loops(const Stream& stream, std::uint32_t first, std::uint32_t last) {
    std::vector<std::uint32_t> positions;
    for (std::uint32_t at = first; at < last;) {
        positions.push_back(at);
        const Operation& op = stream.operations[at];
        at = op.opcode == Opcode::Loop ? std::max(op.extra, at + 1) : at + 1;
    }
    return positions;
}

// Registers that are read before they are written from `first` on, given those that are after `last`.
std::uint32_t live_before(const Stream& stream, std::uint32_t first, std::uint32_t last, std::uint32_t after);

std::uint32_t live_before(const Stream& stream, std::uint32_t at, std::uint32_t after) {
    const Operation& op = stream.operations[at];
    if (op.opcode != Opcode::Loop) {
        return (after & ~writes(op)) | reads(op);
    }
    // The body may run not at all, once, or again after itself.
    const std::uint32_t once = live_before(stream, at + 1, op.extra, after);
    const std::uint32_t again = live_before(stream, at + 1, op.extra, after | once);
    return reads(op) | after | (again & ~writes(op));
}

std::uint32_t live_before(const Stream& stream, std::uint32_t first, std::uint32_t last, std::uint32_t after) {
    for (const std::uint32_t at : outside_loops(stream, first, last) | std::views::reverse) {
        after = live_before(stream, at, after);
    }
    return after;
}

}  // namespace

std::map<std::uint32_t, Segment> independent_segments(const Stream& stream) {
    const auto end = static_cast<std::uint32_t>(stream.operations.size());
    std::map<std::uint32_t, Segment> segments;
    std::uint32_t live = 0;      // before the instruction last looked at
    std::uint32_t last = end;    // where a segment that begins here ends
    for (const std::uint32_t at : outside_loops(stream, 0, end) | std::views::reverse) {
        if (stream.operations[at].opcode == Opcode::Wait) {
            Segment segment{at + 1, last, live & ~channel_number, 0};  // every channel keeps its own number
            bool independent = true;
            for (std::uint32_t i = at + 1; i < last; ++i) {
                const Operation& op = stream.operations[i];
                independent &= (reads(op) & channel_number) == 0 && op.opcode != Opcode::Sta && op.opcode != Opcode::Wait;
                segment.written |= writes(op);
            }
            if (independent && segment.first < last) {
                segments.emplace(at, segment);
            }
            last = at;
        }
        live = live_before(stream, at, live);
    }
    return segments;
}

const Segment* SegmentTable::after_wait(std::uint32_t position) const {
    const auto found = segments_.find(position);
    return found == segments_.end() ? nullptr : &found->second;
}

std::uint32_t SegmentTable::next_wait(std::uint32_t position, std::uint32_t end) const {
    const auto found = segments_.lower_bound(position);
    return found == segments_.end() ? end : found->first;
}

const SegmentRun* SegmentTable::find(const Segment& segment, const ChannelTiming& timing, const Registers& registers) const {
    const auto found = runs_.find(segment.first);
    if (found == runs_.end()) {
        return nullptr;
    }
    for (const SegmentRun& run : found->second) {
        bool same = timing.continues_like(run.start);
        for (std::size_t number = 0; same && number < registers.size(); ++number) {
            same = (segment.live >> number & 1) == 0 || registers[number] == run.start_registers[number];
        }
        if (same) {
            return &run;
        }
    }
    return nullptr;
}

}  // namespace wordline
