#include <algorithm>
#include <bit>

#include "wordline/error.hpp"
#include "wordline/trace.hpp"

namespace wordline {

CorrectedTraces::CorrectedTraces(const Machine& machine) : machine_(machine) { check_timing_machine(machine_); }

TraceTiming CorrectedTraces::run(std::string_view text, const std::string& name, const TraceOptions& options) const {
    const std::int32_t n_channels = machine_.organisation.channels;
    const std::vector<TraceInstruction> trace =
        parse_trace(text, name, {n_channels, machine_.organisation.banks, machine_.aim_simulator.lut_row, false});
    const std::vector<std::uint32_t> parts = alike_channels(trace, n_channels);

    TraceTiming result;
    result.lines = std::ssize(trace);
    std::vector<TraceEntry>* const schedule = options.record_limit > 0 ? &result.schedule : nullptr;
    CauseCycles unused{};  // causes by instruction are not asked for
    std::vector<ChannelTiming> channels;
    channels.reserve(parts.size());
    for (const std::uint32_t part : parts) {
        channels.emplace_back(machine_, std::countr_zero(part), &unused, schedule, options.step_bursts);
    }

    for (const TraceInstruction& instruction : trace) {
        if (instruction.op == TraceOp::sync) {
            // A signal of every channel and a wait for all of them: two slots, and what is on its way has to land.
            std::int64_t effect = 0;
            for (ChannelTiming& channel : channels) {
                effect = std::max(effect, channel.signal(0));
            }
            for (ChannelTiming& channel : channels) {
                channel.hold(effect + 1, Cause::wait, 0);
                channel.slot(0);
            }
        }
        if (instruction.op != TraceOp::request) {
            continue;
        }
        result.addressed |= instruction.channels;
        if (schedule != nullptr && instruction.count > options.record_limit - std::ssize(*schedule)) {
            throw Error("trace-too-long", "the trace issues more than " + std::to_string(options.record_limit) + " commands", name,
                        "record a shorter trace, or raise the limit");
        }
        ChannelCommand command{};
        command.bank = instruction.bank;
        command.row = instruction.row;
        command.count = instruction.count;
        for (std::size_t part = 0; part < parts.size(); ++part) {
            if ((instruction.channels & parts[part]) != 0) {
                channels[part].access(instruction.command, command);
                check_trace_cycle(channels[part].now(), name, instruction.line);
            }
        }
    }
    std::int64_t left_open = 0, left_open_since = 0;  // channels whose rows stay open to the end of the trace, sum of their own ends
    for (std::size_t part = 0; part < parts.size(); ++part) {
        const ChannelSummary summary = channels[part].finish();
        const std::int64_t copies = std::popcount(parts[part]);
        if ((parts[part] & result.addressed) != 0) {
            const std::int64_t end = summary.end + summary.refresh_charge;
            result.cycles = std::max(result.cycles, end);
            result.open_cycles += copies * summary.open_cycles;
            left_open += summary.rows_open ? copies : 0;
            left_open_since += summary.rows_open ? copies * end : 0;
            result.refresh_cycles += copies * (summary.refreshes * machine_.timing.nRFC + summary.refresh_charge);
        }
        for (std::size_t i = 0; i < n_dram_commands; ++i) {
            result.commands[i] += copies * summary.commands[i];
        }
    }
    result.open_cycles += left_open * result.cycles - left_open_since;
    result.simulated_channels = static_cast<std::int32_t>(parts.size());
    spread_schedule(result.schedule, parts);
    return result;
}

}  // namespace wordline
