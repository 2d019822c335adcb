// Cycle model of a whole device program: all streams of one submission, each channel by itself (`docs/timing.md`).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "wordline/channel_timing.hpp"
#include "wordline/critical_path.hpp"
#include "wordline/machine.hpp"
#include "wordline/program.hpp"

namespace wordline {

struct TimingOptions {
    bool trace = false;           // record every DRAM command
    bool step_bursts = false;     // issue every column by itself, for tests of the closed form
    bool accesses = false;        // record what each channel instruction did, see Access
    bool share_channels = true;   // simulate once what several channels, or several submissions, do alike
    bool instruction_commands = false;  // count the commands of each instruction; nothing of earlier submissions is taken over then
    std::uint64_t instruction_limit = no_instruction_limit;  // of each stream and channel
    bool explain = false;         // record what held every event, and the critical path; nothing is then taken over from other submissions
};

// A channel instruction that reads or writes columns or registers, or a WAIT: what another command processor would have to do.
struct Access {
    std::int64_t cycle;  // in which it issued, or its last command
    std::int32_t channel;
    bool wait;
    DramCommand command;
    std::int32_t count, bank, row;  // bank and row are -1 where the command has none
};

struct CauseCharge {
    std::int32_t instruction;
    Cause cause;
    std::int64_t cycles;
};

struct CommandCharge {
    std::int32_t instruction;
    DramCommand command;
    std::int64_t count;
};

// What a segment was charged, as often as it was gone through.
struct RepeatedCharges {
    std::shared_ptr<const std::vector<CauseCharge>> charges;  // instructions count from `first`
    std::shared_ptr<const std::vector<CommandCharge>> commands;
    std::uint32_t first;
    std::int64_t times;
};

// What one stream did, by index of instruction.
struct StreamTiming {
    // Channel streams, summed over their channels; without tail and refresh charge. Computed when it is asked for.
    std::vector<CauseCycles> all_causes() const;
    // Likewise, empty if they were not counted.
    std::vector<CommandCounts> all_commands() const;

    Engine engine = Engine::channel;
    std::vector<CauseCycles> causes;   // of all_causes(): what was charged outside segments that repeat
    std::vector<CommandCounts> commands;  // likewise
    std::vector<RepeatedCharges> repeated;
    std::vector<std::int64_t> busy;    // vector and link streams: cycles that each instruction took
    std::vector<std::int64_t> bytes;   // link streams: bytes that each instruction carried
    std::int64_t end = 0;              // cycle after the last effect; channel streams: of the latest channel, refresh charge included
};

struct TimingResult {
    std::int64_t cycles = 0;
    std::vector<ChannelSummary> channels;  // causes of each sum to `cycles`; rows left open stay so to the end of the submission
    std::vector<StreamTiming> streams;
    std::vector<TraceEntry> trace;         // in order of cycle, then channel
    std::vector<Access> accesses;          // in order of cycle, then channel
    std::int32_t simulated_channels = 0;
    std::shared_ptr<const Explanation> explanation;  // null if it was not asked for
    std::int64_t shared_segments = 0;      // segments that a channel took over from another or from an earlier submission
};

class TimingMemo;

class TimingModel {
public:
    // Throws Error("bad-machine"), see check_timing_machine().
    explicit TimingModel(const Machine& machine);

    // `memory` is the controller's memory when the submission starts; stores of the program stay in the model. Shared registers read as 0:
    // timing does not depend on values. `memo`, of the same program and used with this model only, may hold what earlier submissions did: the result
    // is the same. Throws Fault.
    TimingResult run(const Program& program, std::int64_t argument_base, std::span<const std::int32_t> memory,
                     const TimingOptions& options = {}, TimingMemo* memo = nullptr) const;

    // Cycles of a vector pass over n elements.
    std::int64_t pass_cycles(const PassForm& form, std::int64_t n) const;
    // The same by what they go into: elements through the ports, the chain of operations, overhead; a pass takes a cycle at least.
    std::array<std::int64_t, 3> pass_parts(const PassForm& form, std::int64_t n) const;

private:
    Machine machine_;
    std::vector<std::int32_t> op_latency_;  // by operation code
};

}  // namespace wordline
