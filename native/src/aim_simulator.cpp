#include <algorithm>
#include <bit>

#include "wordline/aim_channel.hpp"
#include "wordline/error.hpp"

namespace wordline {
namespace {

using Trace = std::vector<TraceInstruction>;

constexpr int patience = 8;  // alike blocks that change something, after which the rest is not watched any more

// Blocks of a trace that do the same again and again.
//
// A block ends with a blocking instruction that is followed by one that is not: then, as a rule, nothing is under way. Two blocks are alike if
// they have the same instructions but for the rows, and go to another row in the same places: a controller that compares a row with the
// open one only does the same in both. All their rows are of all banks, so that one row is open at a time.
class Blocks {
public:
    Blocks(const Trace& trace, const Machine::AimSimulator& rules) : trace_(trace), rules_(rules) {}

    bool blocks_host(const TraceInstruction& line) const {
        if (line.op != TraceOp::request) {
            return line.op != TraceOp::host;
        }
        return rules_.blocking_reads && (line.command == DramCommand::rdmac16 || line.command == DramCommand::rdaf16);
    }

    // The line after the block that begins with line `first`.
    std::size_t end(std::size_t first) const {
        std::size_t line = first;
        while (line + 1 < trace_.size() && (!blocks_host(trace_[line]) || blocks_host(trace_[line + 1]))) {
            ++line;
        }
        return line + 1;
    }

    // How many blocks from the one of lines first..end on are alike, itself included; where the first goes to its first row does not count.
    std::size_t count_alike(std::size_t first, std::size_t end) const {
        const std::size_t length = end - first;
        if (end + 2 * length > trace_.size() || !same(trace_[first], trace_[end]) || !may_repeat(first, end)) {
            return 1;
        }
        std::size_t count = 1;
        std::int32_t row = last_row(first, end), reference_row = row;
        for (std::size_t block = end; block + length <= trace_.size(); block += length) {
            for (std::size_t i = 0; i < length; ++i) {
                const TraceInstruction& line = trace_[block + i];
                const TraceInstruction& reference = trace_[end + i];  // the second block
                if (!same(line, trace_[first + i]) || (line.row >= 0 && (line.row == row) != (reference.row == reference_row))) {
                    return count;
                }
                if (line.row >= 0) {
                    row = line.row;
                    reference_row = reference.row;
                }
            }
            reference_row = last_row(first, end);
            ++count;
        }
        return count;
    }

    // The row of the last access in lines first..end, -1: none.
    std::int32_t last_row(std::size_t first, std::size_t end) const {
        while (end-- > first) {
            if (trace_[end].row >= 0) {
                return trace_[end].row;
            }
        }
        return -1;
    }

private:
    static bool same(const TraceInstruction& a, const TraceInstruction& b) {
        return a.op == b.op && a.command == b.command && a.channels == b.channels && a.count == b.count && (a.row < 0) == (b.row < 0);
    }

    // Only accesses of registers and of all banks, the latter on the same channels.
    bool may_repeat(std::size_t first, std::size_t end) const {
        std::uint32_t channels = 0;
        for (std::size_t i = first; i < end; ++i) {
            const TraceInstruction& line = trace_[i];
            if (line.bank >= 0 || line.command == DramCommand::wra16 || line.op == TraceOp::eoc || (line.row >= 0 && channels != 0 && line.channels != channels)) {
                return false;
            }
            channels = line.row >= 0 ? line.channels : channels;
        }
        return true;
    }

    const Trace& trace_;
    const Machine::AimSimulator& rules_;
};

// Decodes one line a cycle and hands it to the channels.
class Host {
public:
    // `recording` may be null.
    Host(const Machine& machine, const Trace& trace, std::span<const std::uint32_t> parts, const TraceOptions& options, const std::string& name,
         Recording* recording)
        : trace_(trace),
          parts_(parts),
          name_(name),
          blocks_(trace, machine.aim_simulator),
          steady_(options.record_limit == 0 && !options.step_bursts && recording == nullptr),
          recording_(recording) {
        channels_.reserve(parts.size());
        logs_.reserve(parts.size());
        if (recording_ != nullptr) {
            recording_->add_lane(LaneKind::host, -1, 0);
        }
        for (const std::uint32_t part : parts) {
            if (recording_ != nullptr) {
                logs_.emplace_back(*recording_, part);
            }
            channels_.emplace_back(machine, std::countr_zero(part), options, name, recording_ != nullptr ? &logs_.back() : nullptr);
        }
    }

    void run() {
        for (std::size_t line = 0; line < trace_.size();) {
            const std::size_t end = blocks_.end(line);
            const std::size_t alike = steady_ ? blocks_.count_alike(line, end) : 1;
            line = alike > 3 ? repeat(line, end - line, alike) : decode(line, end);
        }
        for (AimChannel& channel : channels_) {
            channel.advance(cycle_);
        }
    }

    std::int64_t cycle() const { return cycle_; }  // of the next decoding
    const std::vector<AimChannel>& channels() const { return channels_; }
    // The end of the trace, recorded.
    EventRef end() { return record(EventKind::end, trace_.back().line); }

private:
    EventRef record(EventKind kind, std::uint32_t line) {
        Event event{kind, DramCommand::act, cycle_, cycle_};
        event.instruction = line;
        event.from = held_by_;
        event.rule = held_rule_;
        return recording_->add(AimLog::host, event);
    }

    // The next line is decoded in cycle `cycle` at the earliest, on account of an event.
    void hold(std::int64_t cycle, EventRef event, Rule rule) {
        if (cycle > cycle_) {
            held_by_ = event;
            held_rule_ = rule;
        }
        cycle_ = std::max(cycle_, cycle);
    }

    // Decodes lines first..end; returns end.
    std::size_t decode(std::size_t first, std::size_t end) {
        for (std::size_t i = first; i < end; ++i) {
            const TraceInstruction& line = trace_[i];
            if (recording_ != nullptr) {
                held_by_ = record(EventKind::decode, line.line);
                held_rule_ = Rule::decode;
            }
            const std::int64_t decoded = cycle_++;
            if (line.op == TraceOp::host) {
                continue;
            }
            const bool wait = blocks_.blocks_host(line);
            for (std::size_t part = 0; part < parts_.size(); ++part) {
                if ((line.channels & parts_[part]) == 0) {
                    continue;
                }
                AimChannel& channel = channels_[part];
                const AimLog* const log = recording_ != nullptr ? &logs_[part] : nullptr;
                channel.advance(decoded);
                if (!channel.offer(line)) {
                    const std::int64_t settled = channel.settle();
                    hold(settled + 1, log != nullptr ? log->last() : EventRef{}, Rule::queue);
                }
                if (wait) {
                    const std::int64_t called_back = channel.callback();
                    hold(called_back + 1, log != nullptr ? log->called_back() : EventRef{}, Rule::call_back);
                }
            }
            check_trace_cycle(cycle_, name_, line.line);
        }
        return end;
    }

    // Decodes `count` alike blocks of `length` lines: as soon as one leaves all as it found it, the others are counted. Returns the line after.
    std::size_t repeat(std::size_t first, std::size_t length, std::size_t count) {
        std::uint32_t addressed = 0, with_rows = 0;
        for (std::size_t i = first; i < first + length; ++i) {
            addressed |= trace_[i].channels;
            with_rows |= trace_[i].row >= 0 ? trace_[i].channels : 0;
        }
        const std::size_t end = first + count * length;
        std::size_t line = decode(first, first + length);
        for (int fruitless = 0; line < end && fruitless < patience;) {
            before_.clear();
            bool idle = true;
            for_each(addressed, [&](AimChannel& channel, std::uint32_t) {
                idle &= channel.is_idle();
                before_.push_back(channel.snapshot(cycle_));
            });
            const std::int64_t start = cycle_;
            line = decode(line, line + length);
            const std::int64_t period = cycle_ - start;
            std::int64_t times = idle ? std::min(static_cast<std::int64_t>((end - line) / length), last_trace_cycle / period + 1) : 0;
            std::size_t next = 0;
            for_each(addressed, [&](const AimChannel& channel, std::uint32_t) {
                const AimChannel::Snapshot& before = before_[next++];
                times = times > 0 && channel.repeats(before, cycle_) ? std::min(times, channel.room(before, cycle_)) : 0;
            });
            if (times == 0) {
                ++fruitless;
                continue;
            }
            const std::size_t skipped = line + static_cast<std::size_t>(times) * length;
            next = 0;
            const std::int32_t row = blocks_.last_row(line, skipped);
            for_each(addressed, [&](AimChannel& channel, std::uint32_t part) {
                channel.repeat(before_[next++], cycle_, times, (with_rows & part) != 0 ? row : -1);
            });
            cycle_ += times * period;
            line = skipped;
            check_trace_cycle(cycle_, name_, trace_[line - 1].line);
            fruitless = 0;
        }
        return decode(line, end);
    }

    template <class Function>
    void for_each(std::uint32_t addressed, Function function) {
        for (std::size_t part = 0; part < parts_.size(); ++part) {
            if ((addressed & parts_[part]) != 0) {
                function(channels_[part], parts_[part]);
            }
        }
    }

    const Trace& trace_;
    std::span<const std::uint32_t> parts_;
    const std::string& name_;
    Blocks blocks_;
    const bool steady_;
    Recording* const recording_;
    EventRef held_by_{};                // what holds the decoding of the next line, and by which rule
    Rule held_rule_ = Rule::decode;
    std::vector<AimLog> logs_;          // one for each part, if there is a recording
    std::vector<AimChannel> channels_;  // one for each part
    std::vector<AimChannel::Snapshot> before_;
    std::int64_t cycle_ = 0;
};

}  // namespace

AimSimulator::AimSimulator(const Machine& machine) : machine_(machine) {
    if (machine.aim_simulator.queue_requests < 1) {
        throw Error("bad-machine", "a queue holds at least one request", "aim_simulator.queue_requests");
    }
}

TraceTiming AimSimulator::run(std::string_view text, const std::string& name, const TraceOptions& options) const {
    const std::int32_t n_channels = machine_.organisation.channels;
    const Trace trace = parse_trace(
        text, name, {n_channels, machine_.organisation.banks, machine_.aim_simulator.lut_row, machine_.aim_simulator.reversed_mask});
    const std::vector<std::uint32_t> parts = alike_channels(trace, n_channels);
    TraceTiming result;
    const auto explanation = options.explain ? std::make_shared<Explanation>() : nullptr;
    Host host(machine_, trace, parts, options, name, options.explain ? &explanation->recording : nullptr);
    host.run();
    if (options.explain) {
        explanation->path = explanation->recording.path(host.end(), 0);
        result.explanation = explanation;
    }

    result.cycles = host.cycle();  // the trace ends with EOC, which every channel calls back
    result.lines = std::ssize(trace);
    for (const TraceInstruction& line : trace) {
        result.addressed |= line.op == TraceOp::request ? line.channels : 0;
    }
    for (std::size_t part = 0; part < parts.size(); ++part) {
        const AimChannel& channel = host.channels()[part];
        const std::int64_t copies = std::popcount(parts[part]);
        for (std::size_t i = 0; i < n_dram_commands; ++i) {
            result.commands[i] += copies * channel.commands()[i];
        }
        result.open_cycles += copies * channel.open_cycles(result.cycles);
        result.refresh_cycles += copies * channel.refresh_cycles(result.cycles);
        result.schedule.insert(result.schedule.end(), channel.schedule().begin(), channel.schedule().end());
    }
    result.simulated_channels = static_cast<std::int32_t>(parts.size());
    spread_schedule(result.schedule, parts);
    return result;
}

}  // namespace wordline
