#include <algorithm>
#include <bit>

#include "wordline/aim_channel.hpp"
#include "wordline/error.hpp"

namespace wordline {
namespace {

bool blocks(const TraceInstruction& instruction, const Machine::AimSimulator& rules) {
    if (instruction.op != TraceOp::request) {
        return true;
    }
    return rules.blocking_reads && (instruction.command == DramCommand::rdmac16 || instruction.command == DramCommand::rdaf16);
}

}  // namespace

AimSimulator::AimSimulator(const Machine& machine) : machine_(machine) {
    if (machine.aim_simulator.queue_requests < 1) {
        throw Error("bad-machine", "a queue holds at least one request", "aim_simulator.queue_requests");
    }
}

TraceTiming AimSimulator::run(std::string_view text, const std::string& name, const TraceOptions& options) const {
    const Machine::AimSimulator& rules = machine_.aim_simulator;
    const std::int32_t n_channels = machine_.organisation.channels;
    const std::vector<TraceInstruction> trace =
        parse_trace(text, name, {n_channels, machine_.organisation.banks, rules.lut_row, rules.reversed_mask});
    const std::vector<std::uint32_t> parts = alike_channels(trace, n_channels);

    TraceTiming result;
    std::vector<AimChannel> channels;  // one for each part
    channels.reserve(parts.size());
    for (const std::uint32_t part : parts) {
        channels.emplace_back(machine_, std::countr_zero(part), options, name);
    }

    std::int64_t cycle = 0;  // of the next decoding
    for (const TraceInstruction& instruction : trace) {
        ++result.lines;
        const std::int64_t decoded = cycle++;
        if (instruction.op == TraceOp::host) {
            continue;
        }
        if (instruction.op == TraceOp::request) {
            result.addressed |= instruction.channels;
        }
        const bool wait = blocks(instruction, rules);
        for (std::size_t part = 0; part < parts.size(); ++part) {
            if ((instruction.channels & parts[part]) == 0) {
                continue;
            }
            AimChannel& channel = channels[part];
            channel.advance(decoded);
            if (!channel.offer(instruction)) {
                cycle = std::max(cycle, channel.settle() + 1);
            }
            if (wait) {
                cycle = std::max(cycle, channel.callback() + 1);
            }
        }
        check_trace_cycle(cycle, name, instruction.line);
    }
    result.cycles = cycle;  // the trace ends with EOC, which every channel calls back

    for (std::size_t part = 0; part < parts.size(); ++part) {
        channels[part].advance(result.cycles);
        const std::int64_t copies = std::popcount(parts[part]);
        for (std::size_t i = 0; i < n_dram_commands; ++i) {
            result.commands[i] += copies * channels[part].commands()[i];
        }
        const std::vector<TraceEntry>& schedule = channels[part].schedule();
        result.schedule.insert(result.schedule.end(), schedule.begin(), schedule.end());
    }
    result.simulated_channels = static_cast<std::int32_t>(parts.size());
    spread_schedule(result.schedule, parts);
    return result;
}

}  // namespace wordline
