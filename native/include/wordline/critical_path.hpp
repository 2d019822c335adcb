// Why a submission or a trace takes as long as it does (`docs/profiling.md`).
//
// A model that is asked to explain records what happened as events, each with the one constraint that held it back: a rule, and the event
// from which that rule counts. Followed back from the last event, these form the critical path, whose parts sum to the cycles of the whole.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "wordline/channel_timing.hpp"

namespace wordline {

// What can hold an event back. Constants of the machine come first, in the order of the machine file (sums by the first of their parts, then
// the next, ...): where several hold an event equally long the first one is named. What follows `queue` is no constant.
#define WORDLINE_RULES(X)                                                                                                                 \
    X(nRD_latency, "timing.nRD_latency")                                                                                                  \
    X(nRDCP2MAC, "timing.nRDCP2MAC")                                                                                                      \
    X(nRD2WR, "timing.nRD2WR")                                                                                                            \
    X(nRD2WRMAC, "timing.nRD2WRMAC")                                                                                                      \
    X(nRD2WRGB, "timing.nRD2WRGB")                                                                                                        \
    X(nWR_latency, "timing.nWR_latency")                                                                                                  \
    X(nRDMAC2WR, "timing.nRDMAC2WR")                                                                                                      \
    X(nWRA_latency, "timing.nWRA_latency")                                                                                                \
    X(nWRA2ACT, "timing.nWRA2ACT")                                                                                                        \
    X(nWR2PRE, "timing.nWR2PRE")                                                                                                          \
    X(nWR2RDS, "timing.nWR2RDS")                                                                                                          \
    X(nWR2RDL, "timing.nWR2RDL")                                                                                                          \
    X(nWR2RDMAC, "timing.nWR2RDMAC")                                                                                                      \
    X(nWRA2RD, "timing.nWRA2RD")                                                                                                          \
    X(nWR2MAC, "timing.nWR2MAC")                                                                                                          \
    X(nRDMAC_latency, "timing.nRDMAC_latency")                                                                                            \
    X(nRDMAC2WRMAC, "timing.nRDMAC2WRMAC")                                                                                                \
    X(nRDMAC2WRGB, "timing.nRDMAC2WRGB")                                                                                                  \
    X(nWRMAC_latency, "timing.nWRMAC_latency")                                                                                            \
    X(nWRMAC2RDMAC, "timing.nWRMAC2RDMAC")                                                                                                \
    X(nWRGB_latency, "timing.nWRGB_latency")                                                                                              \
    X(nWRGB2RDMAC, "timing.nWRGB2RDMAC")                                                                                                  \
    X(nEWMUL2PRE, "timing.nEWMUL2PRE")                                                                                                    \
    X(nRCDRD, "timing.nRCDRD")                                                                                                            \
    X(nRCDRDMAC, "timing.nRCDRDMAC")                                                                                                      \
    X(nRCDEWMUL, "timing.nRCDEWMUL")                                                                                                      \
    X(nRCDRDAF, "timing.nRCDRDAF")                                                                                                        \
    X(nRCDRDCP, "timing.nRCDRDCP")                                                                                                        \
    X(nRCDWR, "timing.nRCDWR")                                                                                                            \
    X(nRCDWRCP, "timing.nRCDWRCP")                                                                                                        \
    X(nRP, "timing.nRP")                                                                                                                  \
    X(nRAS, "timing.nRAS")                                                                                                                \
    X(nRC, "timing.nRC")                                                                                                                  \
    X(nRTP, "timing.nRTP")                                                                                                                \
    X(nCCDS, "timing.nCCDS")                                                                                                              \
    X(nCCDL, "timing.nCCDL")                                                                                                              \
    X(nRRDS, "timing.nRRDS")                                                                                                              \
    X(nRRDL, "timing.nRRDL")                                                                                                              \
    X(nFAW, "timing.nFAW")                                                                                                                \
    X(nRFC, "timing.nRFC")                                                                                                                \
    X(nREFI, "timing.nREFI")                                                                                                              \
    X(nMODCH, "timing.nMODCH")                                                                                                            \
    X(nMAC2TMOD, "timing.nMAC2TMOD")                                                                                                      \
    X(nCMD2TMOD, "timing.nCMD2TMOD")                                                                                                      \
    X(landing, "scratch.landing_cycles")                                                                                                  \
    X(vector_lanes, "vector_unit.lanes")                                                                                                  \
    X(vector_latency, "vector_unit.latency")                                                                                              \
    X(vector_overhead, "vector_unit.pass_overhead")                                                                                       \
    X(link_bandwidth, "link.gb_per_s_per_lane")                                                                                           \
    X(link_latency, "link.latency_ns")                                                                                                    \
    X(aim_nRRDS, "aim_simulator.nRRDS")                                                                                                   \
    X(aim_nRRDL, "aim_simulator.nRRDL")                                                                                                   \
    X(queue, "aim_simulator.queue_requests")                                                                                              \
    X(signal, "signal")                 /* WAIT: the cycle after the signal's effect */                                                   \
    X(completion, "completion")         /* profile aim-simulator: requests complete in order, one a cycle */                              \
    X(turn, "turn")                     /* there: other requests went first */                                                            \
    X(call_back, "call_back")           /* there: the line after a blocking one */                                                        \
    X(decode, "decode")                 /* there: one line a cycle */                                                                     \
    X(issue, "issue")                   /* one instruction or command a cycle */                                                          \
    X(refresh_charge, "refresh_charge") /* for the refresh debt at the end */

enum class Rule : std::uint8_t {
#define X(name, text) name,
    WORDLINE_RULES(X)
#undef X
};
inline constexpr std::array rule_names{
#define X(name, text) text,
    WORDLINE_RULES(X)
#undef X
};
constexpr std::size_t n_rules = rule_names.size();

// An event by the lane on which it happened and its number there.
struct EventRef {
    std::int32_t lane = -1;  // -1: none
    std::int32_t index = 0;
    bool exists() const { return lane >= 0; }
};

enum class EventKind : std::uint8_t { command, slot, barrier, pass, transfer, landing, decode, end };
inline constexpr std::array event_kind_names{"command", "slot", "barrier", "pass", "transfer", "landing", "decode", "end"};

struct Event {
    EventKind kind;
    DramCommand command = DramCommand::act;  // of a command
    std::int64_t first = 0;           // cycle
    std::int64_t last = 0;            // cycle from which what depends on it counts: of a burst's last command, of a pass's end
    std::int64_t count = 1;           // commands of a burst
    std::int32_t bank = -1, row = -1, column = -1;
    std::uint32_t instruction = 0;    // of the stream, or line of the trace
    EventRef from{};                  // what `rule` counts from; none: the start
    Rule rule = Rule::issue;          // what held `first`
    std::int32_t times = 1;           // as often as that
    Rule pitch = Rule::issue;         // what holds the commands of a burst apart
    std::array<std::int64_t, 3> parts{};  // of a pass: cycles by vector_lanes, vector_latency, vector_overhead; of a transfer: the first one
    EventRef before{};                // what comes before it in its stream, or the decoding of its line
    bool refresh = false;             // belongs to a forced refresh
    bool due = false;                 // issued in the cycle in which the refresh fell due: nothing held it
};

enum class LaneKind : std::uint8_t { channel, vector, link, host };
inline constexpr std::array lane_kind_names{"channel", "vector", "link", "host"};

// What happens one after another: a simulated channel, the vector unit, the link, or the host that decodes a trace.
struct Lane {
    LaneKind kind;
    std::int32_t stream = -1;    // of a program
    std::uint32_t channels = 0;  // for which it was simulated, bit by number
    std::vector<Event> events{};
    std::vector<std::int32_t> commands{};  // the events that are DRAM commands, in order of cycle

    EventRef last(std::int32_t lane) const { return events.empty() ? EventRef{} : EventRef{lane, static_cast<std::int32_t>(events.size()) - 1}; }
};

// A stretch of the path: what was waited for in cycles begin .. end - 1. `begin` may lie after `end` for a refresh charge that is a credit.
struct PathPart {
    std::int64_t begin, end;
    std::int64_t times;        // how often the rule counts in it
    std::int32_t lane;
    Rule rule;
    EventKind kind;            // of what waited; of what took its turn, where the rule is one of those after `completion`
    DramCommand command;
    std::int32_t bank, row;
    std::uint32_t instruction;
};

class Recording {
public:
    std::int32_t add_lane(LaneKind kind, std::int32_t stream, std::uint32_t channels);
    EventRef add(std::int32_t lane, const Event& event);
    const Event& at(EventRef ref) const { return lanes_[static_cast<std::size_t>(ref.lane)].events[static_cast<std::size_t>(ref.index)]; }
    // The command, or the burst whose last command, issued in this cycle; none if there is none.
    EventRef command_at(std::int32_t lane, std::int64_t cycle) const;
    EventRef last(std::int32_t lane) const { return lanes_[static_cast<std::size_t>(lane)].last(lane); }
    const std::vector<Lane>& lanes() const { return lanes_; }

    // The path to `end` and beyond it to the refresh charge (0: none), in order of time: the parts sum to the cycle of `end` and the charge.
    std::vector<PathPart> path(EventRef end, std::int64_t refresh_charge) const;

private:
    std::vector<Lane> lanes_;
};

struct Explanation {
    Recording recording;
    std::vector<PathPart> path;
};

// Finds which rule ends last; of those that end together the first in the order of `Rule`.
struct Binding {
    std::int64_t at = std::numeric_limits<std::int64_t>::min();
    std::int64_t from = 0;
    Rule rule = Rule::issue;

    void raise(std::int64_t earlier, std::int64_t interval, Rule why) {
        const std::int64_t time = earlier + interval;
        if (time > at || (time == at && why < rule)) {
            at = time;
            from = earlier;
            rule = why;
        }
    }
};

}  // namespace wordline
