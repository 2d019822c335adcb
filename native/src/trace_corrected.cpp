#include <algorithm>
#include <bit>

#include "wordline/channel_log.hpp"
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
    const auto explanation = options.explain ? std::make_shared<Explanation>() : nullptr;
    std::vector<ChannelLog> logs;
    logs.reserve(parts.size());
    for (std::size_t part = 0; explanation != nullptr && part < parts.size(); ++part) {
        logs.emplace_back(explanation->recording, -1, parts[part]);
        channels[part].explain_to(&logs.back());
    }

    for (const TraceInstruction& instruction : trace) {
        for (ChannelLog& log : logs) {
            log.set_line(instruction.line);
        }
        if (instruction.op == TraceOp::sync) {
            // A signal of every channel and a wait for all of them: two slots, and what is on its way has to land.
            std::int64_t effect = 0;
            EventRef slowest;
            for (std::size_t part = 0; part < parts.size(); ++part) {
                const std::int64_t signalled = channels[part].signal(0);
                if (!logs.empty() && (part == 0 || signalled > effect)) {
                    slowest = logs[part].signal();
                }
                effect = std::max(effect, signalled);
            }
            for (ChannelLog& log : logs) {
                log.wait(slowest);
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
    EventRef last;
    std::int64_t last_charge = 0;
    std::int64_t left_open = 0, left_open_since = 0;  // channels whose rows stay open to the end of the trace, sum of their own ends
    for (std::size_t part = 0; part < parts.size(); ++part) {
        const ChannelSummary summary = channels[part].finish();
        const std::int64_t copies = std::popcount(parts[part]);
        if ((parts[part] & result.addressed) != 0) {
            const std::int64_t end = summary.end + summary.refresh_charge;
            if (!logs.empty() && (!last.exists() || end > result.cycles)) {
                last = logs[part].last();
                last_charge = summary.refresh_charge;
            }
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
    if (explanation != nullptr) {
        if (last.exists()) {
            explanation->path = explanation->recording.path(last, last_charge);
        }
        result.explanation = explanation;
    }
    result.simulated_channels = static_cast<std::int32_t>(parts.size());
    spread_schedule(result.schedule, parts);
    return result;
}

}  // namespace wordline
