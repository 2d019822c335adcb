// What a submission's streams do with the command processor's commands: in time, or to find their path through a segment.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wordline/channel_log.hpp"
#include "wordline/timing.hpp"
#include "wordline/timing_memo.hpp"

namespace wordline::timing_sinks {

constexpr std::size_t longest_serial_run = 1 << 16;  // instructions of a vector segment that is kept

// Cycles of a duration; a rounding error of the division does not cost a cycle.
inline std::int64_t cycles_of(double ns, double tck_ns) { return static_cast<std::int64_t>(std::ceil(ns / tck_ns - 1e-9)); }

// What the streams of one submission share.
struct Submission {
    const TimingModel& model;
    const Machine& machine;
    const Program& program;
    std::span<const std::int32_t> memory;
    std::unordered_map<std::int64_t, std::int32_t> stores{};
    // [signal][simulated channel of its producing stream]: cycle of each increment
    std::vector<std::vector<std::vector<std::int64_t>>> increments{};
    std::uint64_t progress = 0;  // waits passed and signals given
    Recording* recording = nullptr;                             // for an explanation
    std::vector<std::vector<std::vector<EventRef>>> sources{};  // then: the event of each increment

    // Cycle of the signal's `value`-th increment, on its slowest channel; -1: not known yet.
    std::int64_t time_of(int signal, std::int32_t value) const {
        std::int64_t time = -1;
        const auto index = static_cast<std::size_t>(value) - 1;
        for (const std::vector<std::int64_t>& times : increments[static_cast<std::size_t>(signal)]) {
            if (times.size() <= index) {
                return -1;
            }
            time = std::max(time, times[index]);
        }
        return time;
    }

    // The event of the signal's `value`-th increment on its slowest channel, the first of those that are equally slow. `value` is at least 1.
    EventRef source_of(int signal, std::int32_t value) const {
        EventRef source;
        std::int64_t time = -1;
        const auto index = static_cast<std::size_t>(value) - 1;
        for (std::size_t lane = 0; lane < increments[static_cast<std::size_t>(signal)].size(); ++lane) {
            if (const std::int64_t cycle = increments[static_cast<std::size_t>(signal)][lane][index]; cycle > time) {
                time = cycle;
                source = sources[static_cast<std::size_t>(signal)][lane][index];
            }
        }
        return source;
    }

    Cause wait_cause(int signal) const {
        const std::int32_t producer = program.producer[static_cast<std::size_t>(signal)];  // loading a program requires one
        switch (program.streams[static_cast<std::size_t>(producer)].engine) {
            case Engine::vector:
                return Cause::vector;
            case Engine::link:
                return Cause::link;
            default:
                return Cause::wait;
        }
    }
};

class Sink {
public:
    Sink(Submission& submission, std::size_t lane) : submission_(submission), lane_(lane) {}

    std::int32_t load_word(std::int64_t address, std::uint32_t) const {
        if (!submission_.stores.empty()) {
            if (const auto found = submission_.stores.find(address); found != submission_.stores.end()) {
                return found->second;
            }
        }
        const auto index = static_cast<std::size_t>(address);
        return index < submission_.memory.size() ? submission_.memory[index] : 0;
    }
    void store_word(std::int64_t address, std::int32_t value) { submission_.stores[address] = value; }
    std::int32_t load_shared(int) const { return 0; }

protected:
    // Cycle in which a WAIT may issue at the earliest, 0: at once; -1: not known yet.
    std::int64_t release(int signal, std::int32_t value) {
        std::int64_t cycle = 0;
        if (value > 0) {
            const std::int64_t effect = submission_.time_of(signal, value);
            if (effect < 0) {
                return -1;
            }
            cycle = effect + 1;
        }
        ++submission_.progress;
        return cycle;
    }
    void increment(int signal, std::int64_t cycle) {
        ++submission_.progress;
        submission_.increments[static_cast<std::size_t>(signal)][lane_].push_back(cycle);
    }
    void increment_by(int signal, EventRef source) { submission_.sources[static_cast<std::size_t>(signal)][lane_].push_back(source); }

    Submission& submission_;
    std::size_t lane_;  // which of the stream's simulated channels
};

class ChannelSink : public Sink {
public:
    // `accesses` may be null.
    ChannelSink(Submission& submission, std::size_t lane, const ChannelTiming& timing, int channel, std::vector<Access>* accesses)
        : Sink(submission, lane), timing_(timing), channel_(channel), accesses_(accesses) {}

    // Records what held every event, on a lane of its own.
    void explain(std::int32_t stream, std::uint32_t channels) { timing_.explain_to(&log_.emplace(*submission_.recording, stream, channels)); }
    EventRef last_event() const { return log_->last(); }

    bool wait(int signal, std::int32_t value, std::uint32_t instruction) {
        const std::int64_t cycle = release(signal, value);
        if (cycle < 0) {
            return false;
        }
        if (log_ && value > 0) {
            log_->wait(submission_.source_of(signal, value));
        }
        timing_.hold(cycle, submission_.wait_cause(signal), instruction);
        timing_.slot(instruction);
        if (accesses_ != nullptr) {
            accesses_->push_back({timing_.now() - 1, channel_, true, DramCommand::act, 0, -1, -1});
        }
        return true;
    }
    void signal(int signal, std::uint32_t instruction) {
        const std::int64_t effect = timing_.signal(instruction);
        signals_.emplace_back(signal, effect);
        increment(signal, effect);
        if (log_) {
            increment_by(signal, log_->signal());
        }
    }
    void scalar(Opcode, std::uint32_t instruction) { timing_.slot(instruction); }

    ChannelTiming& timing() { return timing_; }
    void record_signals() { signals_.clear(); }
    const std::vector<std::pair<int, std::int64_t>>& recorded_signals() const { return signals_; }
    // Does what was done in a segment before, on the rows of this channel's course.
    void follow(const SegmentRun& run, std::span<const std::int32_t> rows, std::uint32_t first) {
        const std::int64_t start = timing_.now();
        timing_.follow(run.episode, rows, first);
        for (const auto& [signal, effect] : run.signals) {
            increment(signal, start + effect);
        }
    }

    void command(const ChannelCommand& command) {
        timing_.command(command);
        if (DramCommand column{}; accesses_ != nullptr && burst_command(command.opcode, column)) {
            const bool registers = column == DramCommand::wrgb || column == DramCommand::wrmac16 || column == DramCommand::rdmac16;
            const bool one_bank = !registers && column != DramCommand::mac16;
            accesses_->push_back({timing_.now() - 1, channel_, false, column, command.count, one_bank ? command.bank : -1,
                                  registers ? -1 : command.row});
        }
    }
    void pass(const PassCommand&) {}          // loading a program refuses these in a channel stream
    void transfer(const TransferCommand&) {}

    ChannelSummary finish() { return timing_.finish(); }

private:
    ChannelTiming timing_;
    int channel_;
    std::vector<Access>* accesses_;
    std::vector<std::pair<int, std::int64_t>> signals_;  // since record_signals()
    std::optional<ChannelLog> log_;
};

// Finds the path through a segment of a channel stream, without time.
class PathSink : public Sink {
public:
    PathSink(Submission& submission, std::size_t lane, const Stream& stream, const StreamSegments& analysis)
        : Sink(submission, lane), stream_(stream), analysis_(analysis) {}

    std::int32_t load_word(std::int64_t address, std::uint32_t instruction) {
        const std::int32_t value = Sink::load_word(address, instruction);
        loads.note(address, value, analysis_.load_shift[instruction]);
        const auto known = std::ranges::find(loaded_, instruction, &std::pair<std::uint32_t, std::int64_t>::first);
        if (known != loaded_.end()) {
            known->second = address;
        } else {
            loaded_.emplace_back(instruction, address);
        }
        if (analysis_.load_leaves[instruction]) {
            reloads.push_back({stream_.operations[instruction].rd, static_cast<std::int32_t>(address)});
        }
        return value;
    }
    bool wait(int, std::int32_t, std::uint32_t) { return false; }  // segments have none
    void signal(int, std::uint32_t) {}
    void scalar(Opcode opcode, std::uint32_t instruction) {
        const bool varies = analysis_.path[instruction].count;
        if (opcode != Opcode::Loop) {
            if (varies) {
                path.push_back(0);  // a burst that comes here has no column
            }
            return;
        }
        const std::int32_t count = stream_.operations[instruction].operands[0].evaluate(registers->data());
        if (varies) {
            path.push_back(count);
        }
        if (count > 0 && analysis_.path[instruction].uses_whole) {
            enter(instruction);
        }
    }
    void command(const ChannelCommand& c) {
        const PathOperands& operands = analysis_.path[c.instruction];
        if (operands.count) {
            path.push_back(c.count);
        }
        if (operands.bank) {
            path.push_back(c.bank);
        }
        if (operands.row) {
            path.push_back(row_number(c.row));
        }
    }
    void pass(const PassCommand&) {}  // loading a program refuses these in a channel stream
    void transfer(const TransferCommand&) {}

    const Registers* registers = nullptr;
    Registers inputs{};  // registers at the start
    std::vector<Course::Reload> reloads;
    std::vector<std::int32_t> path, rows;
    LoadedWords loads;

private:
    // From here on all bits matter of what this loop reads.
    void enter(std::uint32_t loop) {
        if (const auto used = analysis_.loads_used_in.find(loop); used != analysis_.loads_used_in.end()) {
            for (const std::uint32_t load : used->second) {
                for (const auto& [instruction, address] : loaded_) {
                    if (instruction == load) {
                        loads.note(address, Sink::load_word(address, load), 0);
                    }
                }
            }
        }
        if (const auto used = analysis_.inputs_used_in.find(loop); used != analysis_.inputs_used_in.end()) {
            for (const std::uint8_t input : used->second) {
                loads.note(-1 - std::int64_t{input}, inputs[input], 0);
            }
        }
    }
    std::int32_t row_number(std::int32_t row) {
        if (rows.empty() || row != last_row_) {
            last_row_ = row;
            last_number_ = find_row(row);
        }
        return last_number_;
    }
    std::int32_t find_row(std::int32_t row) {
        constexpr std::size_t few = 16;
        const auto next = static_cast<std::int32_t>(rows.size());
        if (rows.size() < few) {
            if (const auto found = std::ranges::find(rows, row); found != rows.end()) {
                return static_cast<std::int32_t>(found - rows.begin());
            }
        } else {
            for (std::size_t i = numbers_.size(); i < rows.size(); ++i) {
                numbers_.emplace(rows[i], static_cast<std::int32_t>(i));
            }
            if (const auto found = numbers_.find(row); found != numbers_.end()) {
                return found->second;
            }
        }
        rows.push_back(row);
        return next;
    }

    const Stream& stream_;
    const StreamSegments& analysis_;
    std::vector<std::pair<std::uint32_t, std::int64_t>> loaded_;  // of each load instruction, the address it last had
    std::unordered_map<std::int32_t, std::int32_t> numbers_;  // of rows
    std::int32_t last_row_ = -1, last_number_ = -1;
};

// The vector unit or the link: one thing at a time.
class SerialSink : public Sink {
public:
    SerialSink(Submission& submission, std::size_t lane, StreamTiming& timing)
        : Sink(submission, lane), busy_(timing.busy), bytes_(timing.bytes) {}

    // Records what held every event, on a lane of its own.
    void explain(LaneKind kind, std::int32_t stream) { log_.emplace(*submission_.recording, kind, stream); }
    // The end of the stream, recorded.
    EventRef last_event() { return log_->end(end()); }

    std::int32_t load_word(std::int64_t address, std::uint32_t instruction) {
        const std::int32_t value = Sink::load_word(address, instruction);
        if (recorded_ != nullptr) {
            recorded_loads_->note(address, value, analysis_->load_leaves[instruction] ? std::uint8_t{0} : analysis_->load_shift[instruction]);
        }
        return value;
    }
    bool wait(int signal, std::int32_t value, std::uint32_t instruction) {
        const std::int64_t cycle = release(signal, value);
        if (cycle < 0) {
            return false;
        }
        if (log_) {
            log_->slot(std::max(now_, cycle), instruction, value > 0 ? submission_.source_of(signal, value) : EventRef{});
        }
        now_ = std::max(now_, cycle);
        take(1, instruction);
        return true;
    }
    void signal(int signal, std::uint32_t instruction) {
        const std::int64_t effect = std::max(now_, landed_);
        increment(signal, effect);
        if (log_) {
            log_->slot(now_, instruction);
            increment_by(signal, log_->signal());
        }
        if (recorded_ != nullptr) {
            recorded_->signals.emplace_back(signal, effect - recorded_from_);
        }
        take(1, instruction);
    }
    void scalar(Opcode, std::uint32_t instruction) {
        if (log_) {
            log_->slot(now_, instruction);
        }
        take(1, instruction);
    }
    void command(const ChannelCommand&) {}  // loading a program refuses these here
    void pass(const PassCommand& pass) {
        if (log_) {
            log_->busy(EventKind::pass, now_, submission_.model.pass_parts(*pass.form, pass.n), pass.instruction);
        }
        take(submission_.model.pass_cycles(*pass.form, pass.n), pass.instruction);
    }
    void transfer(const TransferCommand& transfer) {
        const Machine::Link& link = submission_.machine.link;
        const double tck = submission_.machine.clock.tck_ns;
        const double bytes = static_cast<double>(transfer.blocks) * static_cast<double>(transfer.bytes);
        const std::int64_t cycles = std::max<std::int64_t>(1, cycles_of(bytes / (link.lanes * link.gb_per_s_per_lane), tck));
        if (log_) {
            log_->busy(EventKind::transfer, now_, {cycles, 0, 0}, transfer.instruction);
        }
        take(cycles, transfer.instruction);
        if (bytes > 0) {
            if (log_) {
                log_->land(now_ + cycles_of(link.latency_ns, tck), Rule::link_latency);
            }
            bytes_[transfer.instruction] += transfer.blocks * transfer.bytes;
            landed_ = std::max(landed_, now_ + cycles_of(link.latency_ns, tck));
        }
    }

    std::int64_t end() const { return std::max(now_, landed_); }

    // Vector streams, where nothing is under way between instructions: writes down what follows until stop().
    void record(SerialRun& run, LoadedWords& loads, const StreamSegments& analysis) {
        recorded_ = &run;
        recorded_loads_ = &loads;
        analysis_ = &analysis;
        recorded_from_ = now_;
    }
    void stop() {
        recorded_->cycles = now_ - recorded_from_;
        recorded_ = nullptr;
    }
    void follow(const SerialRun& run) {
        for (const auto& [instruction, cycles] : run.busy) {
            busy_[instruction] += cycles;
        }
        for (const auto& [signal, effect] : run.signals) {
            increment(signal, now_ + effect);
        }
        now_ += run.cycles;
    }

private:
    void take(std::int64_t cycles, std::uint32_t instruction) {
        busy_[instruction] += cycles;
        now_ += cycles;
        if (recorded_ != nullptr && recorded_->busy.size() <= longest_serial_run) {
            recorded_->busy.emplace_back(instruction, cycles);
        }
    }

    std::vector<std::int64_t>& busy_;
    std::vector<std::int64_t>& bytes_;
    std::int64_t now_ = 0, landed_ = 0;
    SerialRun* recorded_ = nullptr;
    LoadedWords* recorded_loads_ = nullptr;
    const StreamSegments* analysis_ = nullptr;
    std::int64_t recorded_from_ = 0;
    std::optional<SerialLog> log_;
};

}  // namespace wordline::timing_sinks
