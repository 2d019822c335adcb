#include <algorithm>
#include <cmath>
#include <concepts>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "wordline/timing.hpp"
#include "wordline/timing_segments.hpp"

namespace wordline {
namespace {

constexpr std::uint8_t channel_number_register = 1;

// Cycles of a duration; a rounding error of the division does not cost a cycle.
std::int64_t cycles_of(double ns, double tck_ns) { return static_cast<std::int64_t>(std::ceil(ns / tck_ns - 1e-9)); }

// All channels of a stream that never reads its channel number do the same.
bool reads_channel_number(const Stream& stream) {
    return std::any_of(stream.operations.begin(), stream.operations.end(), [](const Operation& op) {
        return std::any_of(op.operands.begin(), op.operands.end(), [](const isa::Affine& operand) {
            return (operand.reg0 == channel_number_register && operand.stride0 != 0) ||
                   (operand.reg1 == channel_number_register && operand.stride1 != 0);
        });
    });
}

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

    std::int32_t load_word(std::int64_t address) const {
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

    Submission& submission_;
    std::size_t lane_;  // which of the stream's simulated channels
};

class ChannelSink : public Sink {
public:
    // `accesses` may be null.
    ChannelSink(Submission& submission, std::size_t lane, const ChannelTiming& timing, int channel, std::vector<Access>* accesses)
        : Sink(submission, lane), timing_(timing), channel_(channel), accesses_(accesses) {}

    bool wait(int signal, std::int32_t value, std::uint32_t instruction) {
        const std::int64_t cycle = release(signal, value);
        if (cycle < 0) {
            return false;
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
    }
    void scalar(Opcode, std::uint32_t instruction) { timing_.slot(instruction); }

    const ChannelTiming& timing() const { return timing_; }
    void record_signals() { signals_.clear(); }
    const std::vector<std::pair<int, std::int64_t>>& recorded_signals() const { return signals_; }
    // Does what another channel did in a segment.
    void follow(const SegmentRun& run) {
        timing_.follow(run.start, run.end);
        for (const auto& [signal, effect] : run.signals) {
            increment(signal, effect);
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
};

// The vector unit or the link: one thing at a time.
class SerialSink : public Sink {
public:
    SerialSink(Submission& submission, std::vector<std::int64_t>& busy) : Sink(submission, 0), busy_(busy) {}

    bool wait(int signal, std::int32_t value, std::uint32_t instruction) {
        const std::int64_t cycle = release(signal, value);
        if (cycle < 0) {
            return false;
        }
        now_ = std::max(now_, cycle);
        take(1, instruction);
        return true;
    }
    void signal(int signal, std::uint32_t instruction) {
        increment(signal, std::max(now_, landed_));
        take(1, instruction);
    }
    void scalar(Opcode, std::uint32_t instruction) { take(1, instruction); }
    void command(const ChannelCommand&) {}  // loading a program refuses these here
    void pass(const PassCommand& pass) { take(submission_.model.pass_cycles(*pass.form, pass.n), pass.instruction); }
    void transfer(const TransferCommand& transfer) {
        const Machine::Link& link = submission_.machine.link;
        const double tck = submission_.machine.clock.tck_ns;
        const double bytes = static_cast<double>(transfer.blocks) * static_cast<double>(transfer.bytes);
        take(std::max<std::int64_t>(1, cycles_of(bytes / (link.lanes * link.gb_per_s_per_lane), tck)), transfer.instruction);
        if (bytes > 0) {
            landed_ = std::max(landed_, now_ + cycles_of(link.latency_ns, tck));
        }
    }

    std::int64_t end() const { return std::max(now_, landed_); }

private:
    void take(std::int64_t cycles, std::uint32_t instruction) {
        busy_[instruction] += cycles;
        now_ += cycles;
    }

    std::vector<std::int64_t>& busy_;
    std::int64_t now_ = 0, landed_ = 0;
};

// A stream on one of its simulated channels.
template <class SinkType>
struct Runner {
    template <class... Arguments>
    Runner(Submission& submission, int stream, int channel, std::int64_t argument_base, std::uint64_t limit, Arguments&&... arguments)
        : sink(submission, std::forward<Arguments>(arguments)...),
          runner(submission.machine, submission.program, stream, channel, argument_base, sink, limit) {}
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    bool advance() { return finished || (finished = runner.run() == RunStatus::finished); }

    // The same, sharing segments with the stream's other channels.
    bool advance(SegmentTable& segments, std::vector<CauseCycles>& causes)
        requires std::same_as<SinkType, ChannelSink>
    {
        const auto end = static_cast<std::uint32_t>(causes.size());
        while (!finished) {
            const std::uint32_t position = runner.position();
            const Segment* const segment = segments.after_wait(position);
            const std::uint32_t stop = segment != nullptr ? segment->first : segments.next_wait(position, end);
            switch (runner.run(stop)) {
                case RunStatus::blocked:
                    return false;
                case RunStatus::finished:
                    finished = true;
                    break;
                case RunStatus::stopped:
                    if (segment != nullptr) {
                        go_through(*segment, segments, causes);
                    }
                    break;
            }
        }
        return true;
    }

    SinkType sink;
    StreamRunner<SinkType> runner;
    bool finished = false;
    std::int64_t shared_segments = 0;

private:
    void go_through(const Segment& segment, SegmentTable& segments, std::vector<CauseCycles>& causes) {
        if (const SegmentRun* const known = segments.find(segment, sink.timing(), runner.registers())) {
            sink.follow(*known);
            ++shared_segments;
            for (const auto& [instruction, added] : known->causes) {
                for (std::size_t cause = 0; cause < n_causes; ++cause) {
                    causes[instruction][cause] += added[cause];
                }
            }
            runner.skip(segment.last, known->end_registers, segment.written);
            return;
        }
        const ChannelTiming start = sink.timing();
        const Registers registers = runner.registers();
        const std::vector<CauseCycles> before(causes.begin() + segment.first, causes.begin() + segment.last);
        sink.record_signals();
        finished = runner.run(segment.last) == RunStatus::finished;
        SegmentRun run{start, sink.timing(), registers, runner.registers(), {}, sink.recorded_signals()};
        for (std::uint32_t i = segment.first; i < segment.last; ++i) {
            CauseCycles added = causes[i];
            bool any = false;
            for (std::size_t cause = 0; cause < n_causes; ++cause) {
                added[cause] -= before[i - segment.first][cause];
                any |= added[cause] != 0;
            }
            if (any) {
                run.causes.emplace_back(i, added);
            }
        }
        segments.add(segment, std::move(run));
    }
};

struct Channels {
    std::vector<int> numbers;  // channels that this simulation stands for
    std::unique_ptr<Runner<ChannelSink>> run;
};

std::vector<std::vector<int>> channel_groups(const Stream& stream, int channels, bool share) {
    std::vector<std::vector<int>> groups;
    const bool together = share && !reads_channel_number(stream);
    for (int channel = 0; channel < channels; ++channel) {
        if (stream.channel_mask >> channel & 1) {
            if (groups.empty() || !together) {
                groups.emplace_back();
            }
            groups.back().push_back(channel);
        }
    }
    return groups;
}

template <class RunnerType>
[[noreturn]] void deadlock(const Submission& submission, const RunnerType& blocked) {
    const auto stream = static_cast<std::size_t>(blocked.runner.stream());
    const std::uint32_t instruction = blocked.runner.position();
    const Operation& wait = submission.program.streams[stream].operations[instruction];
    throw Fault(blocked.runner.stream(), blocked.runner.channel(), instruction,
                "deadlock: every stream that has not ended waits; this one for signal " + std::to_string(wait.field) + " to reach " +
                    std::to_string(wait.operands[0].evaluate(blocked.runner.registers().data())));
}

}  // namespace

TimingModel::TimingModel(const Machine& machine) : machine_(machine) {
    check_timing_machine(machine_);
    for (const char* name : isa::vector_op_names) {
        op_latency_.push_back(machine_.vector_unit.latency_of(name));
    }
}

std::int64_t TimingModel::pass_cycles(const PassForm& form, std::int64_t n) const {
    const std::int64_t port = (n + machine_.vector_unit.lanes - 1) / machine_.vector_unit.lanes;
    const std::int64_t streaming = std::max<std::int64_t>(port * form.n_operands, form.has_result ? port : 0);
    std::array<std::int32_t, pass_values> depth{};
    std::int32_t chain = 0;
    for (std::size_t i = 0; i < form.n_operations; ++i) {
        const isa::OperationWord& compute = form.operations[i];
        const std::array<std::uint8_t, 3> sources{compute.a, compute.b, compute.c};
        std::int32_t start = 0;
        for (std::size_t source = 0; source < isa::vector_op_arity[static_cast<std::size_t>(compute.op)]; ++source) {
            start = std::max(start, depth[sources[source]]);
        }
        depth[isa::first_result_value + i] = start + op_latency_[static_cast<std::size_t>(compute.op)];
        chain = std::max(chain, depth[isa::first_result_value + i]);
    }
    return std::max<std::int64_t>(1, streaming + chain + machine_.vector_unit.pass_overhead);
}

TimingResult TimingModel::run(const Program& program, std::int64_t argument_base, std::span<const std::int32_t> memory,
                              const TimingOptions& options) const {
    Submission submission{*this, machine_, program, memory};
    submission.increments.resize(program.producer.size());
    TimingResult result;
    result.streams.resize(program.streams.size());
    result.channels.resize(static_cast<std::size_t>(machine_.organisation.channels));

    std::vector<Access>* const accesses = options.accesses ? &result.accesses : nullptr;

    // Segments are shared where nothing but the totals is asked for.
    const bool share = options.share_channels && !options.trace && !options.accesses && options.instruction_limit == no_instruction_limit;
    std::vector<std::optional<SegmentTable>> segments(program.streams.size());
    std::vector<std::vector<Channels>> channels(program.streams.size());
    std::vector<std::unique_ptr<Runner<SerialSink>>> serial(program.streams.size());
    for (std::size_t s = 0; s < program.streams.size(); ++s) {
        const Stream& stream = program.streams[s];
        StreamTiming& timing = result.streams[s];
        timing.engine = stream.engine;
        std::size_t lanes = 1;
        if (stream.engine == Engine::channel) {
            timing.causes.resize(stream.operations.size());
            const auto groups = channel_groups(stream, machine_.organisation.channels, share);
            lanes = groups.size();
            if (share && lanes > 1) {
                segments[s].emplace(stream);
            }
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const ChannelTiming start(machine_, groups[lane].front(), timing.causes.data(), options.trace ? &result.trace : nullptr,
                                          options.step_bursts);
                channels[s].push_back({groups[lane], std::make_unique<Runner<ChannelSink>>(submission, static_cast<int>(s), groups[lane].front(),
                                                                                          argument_base, options.instruction_limit, lane, start,
                                                                                          groups[lane].front(), accesses)});
            }
            result.simulated_channels += static_cast<std::int32_t>(lanes);
        } else {
            timing.busy.resize(stream.operations.size());
            serial[s] = std::make_unique<Runner<SerialSink>>(submission, static_cast<int>(s), 0, argument_base, options.instruction_limit, timing.busy);
        }
        for (std::size_t signal = 0; signal < program.producer.size(); ++signal) {
            if (program.producer[signal] == static_cast<std::int32_t>(s)) {
                submission.increments[signal].resize(lanes);
            }
        }
    }

    for (bool finished = false; !finished;) {
        finished = true;
        const std::uint64_t before = submission.progress;
        for (std::size_t s = 0; s < program.streams.size(); ++s) {
            for (Channels& group : channels[s]) {
                finished &= segments[s] ? group.run->advance(*segments[s], result.streams[s].causes) : group.run->advance();
            }
            finished &= serial[s] == nullptr || serial[s]->advance();
        }
        if (!finished && submission.progress == before) {
            for (std::size_t s = 0; s < program.streams.size(); ++s) {
                for (const Channels& group : channels[s]) {
                    if (!group.run->finished) {
                        deadlock(submission, *group.run);
                    }
                }
                if (serial[s] != nullptr && !serial[s]->finished) {
                    deadlock(submission, *serial[s]);
                }
            }
        }
    }

    for (std::size_t s = 0; s < program.streams.size(); ++s) {
        StreamTiming& timing = result.streams[s];
        for (Channels& group : channels[s]) {
            const ChannelSummary summary = group.run->sink.finish();
            timing.end = std::max(timing.end, summary.end + summary.refresh_charge);
            result.shared_segments += group.run->shared_segments;
            for (const int channel : group.numbers) {
                result.channels[static_cast<std::size_t>(channel)] = summary;
            }
        }
        if (channels[s].size() == 1) {  // one simulation stood for all its channels
            const auto copies = static_cast<std::int64_t>(channels[s].front().numbers.size());
            for (CauseCycles& causes : timing.causes) {
                for (std::int64_t& cycles : causes) {
                    cycles *= copies;
                }
            }
        }
        if (serial[s] != nullptr) {
            timing.end = serial[s]->sink.end();
        }
        result.cycles = std::max(result.cycles, timing.end);
    }
    for (ChannelSummary& channel : result.channels) {
        channel.causes[static_cast<std::size_t>(Cause::tail)] = result.cycles - channel.end - channel.refresh_charge;
    }
    const auto earlier = [](const auto& a, const auto& b) { return std::pair(a.cycle, a.channel) < std::pair(b.cycle, b.channel); };
    std::stable_sort(result.trace.begin(), result.trace.end(), earlier);
    std::stable_sort(result.accesses.begin(), result.accesses.end(), earlier);
    return result;
}

}  // namespace wordline
