#include "wordline/timing_segments.hpp"

#include <algorithm>
#include <bit>
#include <memory>
#include <ranges>
#include <type_traits>

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

std::int64_t ChannelTiming::horizon() const {
    // Each interval of the rules is one of these or the sum of two.
    return 2 * std::int64_t{std::max({t_.nRFC, t_.nRC, t_.nRAS, t_.nFAW, t_.nCL, t_.nCWL, t_.nBL, t_.nWR, t_.nRP, t_.nRTP,
                                     t_.nMODCH, t_.nRCDRD, t_.nRCDRDMAC, t_.nRCDEWMUL, t_.nRCDRDAF, t_.nRCDRDCP, t_.nRCDWR,
                                     t_.nRCDWRCP, t_.nRRDS, t_.nRRDL, t_.nRD2WR, t_.nRD2WRGB, t_.nRD2WRMAC, t_.nRDMAC2WR,
                                     t_.nRDMAC2WRGB, t_.nRDMAC2WRMAC, t_.nWR2MAC, t_.nWR2RDS, t_.nWR2RDL, t_.nWR2RDMAC,
                                     t_.nWRA2RD, t_.nWRGB2RDMAC, t_.nWRMAC2RDMAC, t_.nRDCP2MAC, t_.nWR2PRE, t_.nEWMUL2PRE,
                                     t_.nWRA2ACT, t_.nMAC2TMOD, t_.nCMD2TMOD})};
}

bool ChannelTiming::continues_like(const ChannelTiming& other) const {
    const bool landing = landed_ > now_;
    if (now_ != other.now_ || due_ != other.due_ || refreshes_ != other.refreshes_ || landing != (other.landed_ > other.now_) ||
        (landing && (landed_ != other.landed_ || landing_cause_ != other.landing_cause_ || landing_instruction_ != other.landing_instruction_)) ||
        register_mode_ != other.register_mode_ || visit_cause_ != other.visit_cause_ || activation_cause_ != other.activation_cause_ ||
        entry_cycles_ != other.entry_cycles_ || (entry_cycles_ != 0 && entry_instruction_ != other.entry_instruction_) ||
        common_row_ != other.common_row_ || open_banks_ != other.open_banks_ || row_.values != other.row_.values ||
        refreshed_row_.values != other.refreshed_row_.values) {
        return false;
    }
    // The history holds cycles only; what lies behind the horizon is all the same.
    static_assert(sizeof(History) % sizeof(std::int64_t) == 0 && std::is_trivially_copyable_v<History>);
    using Cycles = std::array<std::int64_t, sizeof(History) / sizeof(std::int64_t)>;
    const auto mine = std::bit_cast<Cycles>(last_), theirs = std::bit_cast<Cycles>(other.last_);
    const std::int64_t far = now_ - horizon();
    for (std::size_t i = 0; i < mine.size(); ++i) {
        if (mine[i] != theirs[i] && (mine[i] > far || theirs[i] > far)) {
            return false;
        }
    }
    return true;
}

void ChannelTiming::follow(const ChannelTiming& start, const ChannelTiming& end) {
    ChannelTiming next = end;
    next.channel_ = channel_;
    for (std::size_t i = 0; i < n_causes; ++i) {
        next.causes_[i] = causes_[i] + end.causes_[i] - start.causes_[i];
    }
    for (std::size_t i = 0; i < n_dram_commands; ++i) {
        next.commands_[i] = commands_[i] + end.commands_[i] - start.commands_[i];
    }
    std::destroy_at(this);  // it has references, so it cannot be assigned
    std::construct_at(this, next);
}

}  // namespace wordline
