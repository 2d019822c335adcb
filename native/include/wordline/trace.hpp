// The trace language of the public AiM simulator, and the time that a trace takes (`docs/timing.md`, "Traces").
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wordline/channel_timing.hpp"
#include "wordline/critical_path.hpp"
#include "wordline/machine.hpp"

namespace wordline {

enum class TraceOp : std::uint8_t {
    host,     // takes a line and addresses no channel: GPR and CFR accesses, EWADD, an empty mask, no columns
    request,  // `count` DRAM commands on each of `channels`
    sync,
    eoc
};

struct TraceInstruction {
    TraceOp op;
    DramCommand command;     // of a request
    std::uint32_t channels;  // bit c: channel c; all for SYNC and EOC
    std::int32_t count;
    std::int32_t bank, row;  // -1 where the command has none
    std::uint32_t line;      // from 1
};

// How the numbers of a trace are to be understood.
struct TraceForm {
    std::int32_t channels, banks;
    std::int32_t lut_row;  // row of the table of activation function 0
    bool reversed_mask;    // bit i of a mask is channel `channels` - 1 - i
};

// The instructions up to EOC, which is the last one; what follows it is not read. Accepts whatever the public simulator accepts, and besides:
// tabs and commas between fields, blank lines, comments after a field, a last line without its end, WR_ABK on many channels.
// Throws Error("bad-trace") with `name`:line and what was expected there.
std::vector<TraceInstruction> parse_trace(std::string_view text, const std::string& name, const TraceForm& form);

// The channels, split so that the instructions address all or none of each part. Parts are masks in order of their lowest channel.
std::vector<std::uint32_t> alike_channels(std::span<const TraceInstruction> trace, std::int32_t channels);

struct TraceOptions {
    std::int64_t record_limit = 0;  // record this many commands of all channels at most; more are refused
    bool step_bursts = false;       // issue every column by itself, for tests of the closed form
    bool explain = false;           // record what held every event, and the critical path
};

struct TraceTiming {
    std::int64_t cycles = 0;
    std::int64_t lines = 0;              // instructions, EOC included
    std::uint32_t addressed = 0;         // channels that some request names
    std::int32_t simulated_channels = 0;
    CommandCounts commands{};            // all channels together
    std::int64_t open_cycles = 0;        // with a row open in some bank, all channels together
    std::int64_t refresh_cycles = 0;     // spent in refresh, or charged for it, all addressed channels together
    std::vector<TraceEntry> schedule;    // in order of cycle, then channel
    std::shared_ptr<const Explanation> explanation;  // instructions are lines; null if it was not asked for
};

// What the public simulator makes of it. Throws Error("bad-trace") with file and line for a trace that it never ends.
class AimSimulator {
public:
    explicit AimSimulator(const Machine& machine);  // throws Error("bad-machine")
    TraceTiming run(std::string_view text, const std::string& name, const TraceOptions& options) const;

private:
    Machine machine_;
};

// The same trace by the rules of profile `corrected`: each channel has its own stream, and nothing waits but for SYNC.
class CorrectedTraces {
public:
    explicit CorrectedTraces(const Machine& machine);  // throws Error("bad-machine")
    TraceTiming run(std::string_view text, const std::string& name, const TraceOptions& options) const;

private:
    Machine machine_;
};

// The models count to this cycle (a year of device time). Throws Error("bad-trace") for a trace that has gone beyond.
constexpr std::int64_t last_trace_cycle = std::int64_t{1} << 56;
void check_trace_cycle(std::int64_t cycle, const std::string& name, std::uint32_t line);

// Copies the recorded commands of one channel to all of `channels`, and puts the whole in order.
void spread_schedule(std::vector<TraceEntry>& schedule, std::span<const std::uint32_t> parts);

}  // namespace wordline
