#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "wordline/timing.hpp"
#include "wordline/timing_memo.hpp"
#include "wordline/timing_sinks.hpp"

namespace wordline {
namespace {

using namespace timing_sinks;

constexpr std::uint64_t longest_path = 1 << 18;  // instructions of a segment that is looked at ahead
constexpr std::size_t most_path_rows = 1 << 14;  // different rows of such a segment

// All channels of a stream that never reads its channel number do the same.
bool reads_channel_number(const Stream& stream) {
    return std::any_of(stream.operations.begin(), stream.operations.end(), [](const Operation& op) {
        return std::any_of(op.operands.begin(), op.operands.end(), [](const isa::Affine& operand) {
            return (operand.reg0 == channel_number_register && operand.stride0 != 0) ||
                   (operand.reg1 == channel_number_register && operand.stride1 != 0);
        });
    });
}

// What the channels of a stream share in one submission.
struct Sharing {
    StreamMemo& memo;
    std::uint64_t submission;
    std::vector<RepeatedCharges>& repeated;
    bool count_commands;
    std::vector<CauseCycles> charges{};  // of the segment that is being recorded; all zero in between
    std::vector<CommandCounts> counts{};
    std::vector<std::int32_t> inputs{};  // kept for its memory

    // Segments of one shape may share a run; channels come to them one after the other.
    void use(SegmentRun& run, std::uint32_t first) {
        if (run.submission != submission || repeated[run.use].first != first) {
            run.submission = submission;
            run.use = repeated.size();
            repeated.push_back({run.causes, run.commands, first, 0});
        }
        ++repeated[run.use].times;
    }
};

// A stream on one of its simulated channels.
template <class SinkType>
struct Runner {
    template <class... Arguments>
    Runner(Submission& submission, int stream, int channel, std::int64_t argument_base, std::uint64_t limit, std::size_t lane, Arguments&&... arguments)
        : submission(submission),
          lane(lane),
          argument_base(argument_base),
          sink(submission, lane, std::forward<Arguments>(arguments)...),
          runner(submission.machine, submission.program, stream, channel, argument_base, sink, limit) {}
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    bool advance() { return finished || (finished = runner.run() == RunStatus::finished); }

    // The same, taking over segments that are known already.
    bool advance(Sharing& sharing) {
        while (!finished) {
            const std::span<const Segment> segments = sharing.memo.segments();
            const RunStatus status = runner.run(segment < segments.size() ? segments[segment].first : no_stop);
            if (status == RunStatus::blocked) {
                return false;
            }
            finished = status == RunStatus::finished;
            if (status == RunStatus::stopped) {
                go_through(sharing);
                ++segment;
            }
        }
        return true;
    }

    Submission& submission;
    std::size_t lane, segment = 0;
    SegmentRun* last_run = nullptr;  // that was followed: what came after it is known while the channel lags
    std::uint32_t last_first = 0;
    std::int64_t last_end = 0;
    std::int64_t argument_base;
    SinkType sink;
    StreamRunner<SinkType> runner;
    bool finished = false;
    std::int64_t shared_segments = 0;

private:
    void go_through(Sharing& sharing);
    const Course* find_course(Sharing& sharing) {
        sharing.memo.inputs_of(segment, argument_base, runner.registers(), sharing.inputs);
        return sharing.memo.find_course(segment, lane, sharing.inputs, [this](std::int64_t address) {
            return address < 0 ? runner.registers()[static_cast<std::size_t>(-1 - address)] : sink.Sink::load_word(address, 0);
        });
    }
};

// The course of the segment before the runner, found without time; null if it is too long.
const Course* explore(const Runner<ChannelSink>& at, Sharing& sharing) {
    const Submission& submission = at.submission;
    const Segment& segment = sharing.memo.segments()[at.segment];
    PathSink path(at.submission, at.lane, submission.program.streams[static_cast<std::size_t>(at.runner.stream())], sharing.memo.analysis());
    StreamRunner<PathSink> ahead(submission.machine, submission.program, at.runner.stream(), at.runner.channel(), at.argument_base, path,
                                 longest_path);
    path.registers = &ahead.registers();
    path.inputs = at.runner.registers();
    ahead.skip(segment.first, at.runner.registers().data(), ~std::uint32_t{0});
    try {
        ahead.run(segment.last);
    } catch (const Fault&) {  // too long, or the simulation meets the same fault
        sharing.memo.set_too_long(at.segment);
        return nullptr;
    }
    if (path.rows.size() > most_path_rows) {
        sharing.memo.set_too_long(at.segment);
        return nullptr;
    }
    Course course(sharing.inputs, path.loads.all(), path.rows, ahead.registers(), segment.written);
    course.path = sharing.memo.path_number(segment.shape, path.path);
    course.reloads = std::move(path.reloads);
    return &sharing.memo.add_course(at.segment, sharing.inputs, std::move(course));
}

// What is known of channels in the state before the segment of `at`; null: nothing, and `outlook` is that state's then.
SegmentStart* find_start(Runner<ChannelSink>& at, StreamMemo& memo, const Course& course, ChannelOutlook& outlook) {
    ChannelTiming& timing = at.sink.timing();
    const Segment& segment = memo.segments()[at.segment];
    // With a refresh overdue more of the history counts than settles after a run.
    const bool continues = timing.lags() && timing.refresh_overdue() == 0;
    Continuation continuation{};
    if (continues) {
        const auto number = [rows = course.rows()](std::int32_t row) {
            return row < 0 ? -1 : static_cast<std::int32_t>(std::ranges::find(rows, row) - rows.begin());
        };
        const std::int64_t elapsed = std::min(timing.now() - at.last_end, at.last_run->episode.settled_after);
        continuation = {elapsed, segment.first - at.last_first, segment.shape, course.path, number(timing.open_row()), number(timing.refreshed_row())};
        for (const auto& [known, start] : at.last_run->continuations) {
            if (known == continuation) {
                return start;
            }
        }
    }
    timing.settle();
    outlook = timing.outlook(course.rows(), segment.first);
    SegmentStart* const start = memo.find_start(segment.shape, course.path, outlook);
    if (continues && start != nullptr) {
        memo.add_continuation(*at.last_run, continuation, *start);
    }
    return start;
}

template <>
void Runner<ChannelSink>::go_through(Sharing& sharing) {
    StreamMemo& memo = sharing.memo;
    const Segment& part = memo.segments()[segment];
    const Course* course = nullptr;
    if (!memo.too_long(segment)) {
        course = find_course(sharing);
        course = course != nullptr ? course : explore(*this, sharing);
    }
    if (course == nullptr) {
        finished = runner.run(part.last) == RunStatus::finished;
        return;
    }
    ChannelTiming& timing = sink.timing();
    ChannelOutlook outlook;
    SegmentStart* start = find_start(*this, memo, *course, outlook);
    if (SegmentRun* const known = start != nullptr ? start->find(timing.refresh_phase()) : nullptr) {
        sink.follow(*known, course->rows(), part.first);
        sharing.use(*known, part.first);
        ++shared_segments;
        last_run = known;
        last_first = part.first;
        last_end = timing.now();
        runner.skip(part.last, course->end_registers(), part.written);
        for (const Course::Reload& reload : course->reloads) {
            const std::int32_t word = sink.Sink::load_word(reload.address, 0);
            runner.skip(part.last, &word, std::uint32_t{1} << reload.reg);
        }
        return;
    }
    timing.settle();
    if (start == nullptr) {
        start = &memo.add_start(part.shape, course->path, outlook);
    }
    const ChannelTiming before = timing;
    const std::size_t instructions = submission.program.streams[static_cast<std::size_t>(runner.stream())].operations.size();
    sharing.charges.resize(instructions);
    sharing.counts.resize(sharing.count_commands ? instructions : 0);
    const auto [causes, commands] = timing.charge_to(sharing.charges.data(), sharing.count_commands ? sharing.counts.data() : nullptr);
    timing.begin_episode();
    sink.record_signals();
    finished = runner.run(part.last) == RunStatus::finished;
    timing.charge_to(causes, commands);
    std::vector<CauseCharge> charged;
    std::vector<CommandCharge> counted;
    const auto take = [&](std::size_t instruction) {
        for (std::size_t cause = 0; cause < n_causes; ++cause) {
            if (const std::int64_t cycles = std::exchange(sharing.charges[instruction][cause], 0); cycles != 0) {
                charged.push_back({static_cast<std::int32_t>(instruction) - static_cast<std::int32_t>(part.first), static_cast<Cause>(cause), cycles});
            }
        }
    };
    for (std::size_t instruction = part.first; instruction < part.last; ++instruction) {
        take(instruction);
        for (std::size_t command = 0; sharing.count_commands && command < n_dram_commands; ++command) {
            if (const std::int64_t count = std::exchange(sharing.counts[instruction][command], 0); count != 0) {
                counted.push_back({static_cast<std::int32_t>(instruction) - static_cast<std::int32_t>(part.first), static_cast<DramCommand>(command), count});
            }
        }
    }
    if (start->outlook.entry_cycles != 0) {  // the visit that a TMOD before has opened may serve another purpose than was thought
        take(static_cast<std::size_t>(std::int64_t{part.first} + start->outlook.entry_instruction));
    }
    SegmentRun run{timing.end_episode(before, course->rows(), part.first), std::make_shared<const std::vector<CauseCharge>>(std::move(charged)),
                   std::make_shared<const std::vector<CommandCharge>>(std::move(counted)), sink.recorded_signals()};
    for (auto& [signal, effect] : run.signals) {
        effect -= before.now();
    }
    sharing.use(memo.add_run(*start, std::move(run)), part.first);
}

template <>
void Runner<SerialSink>::go_through(Sharing& sharing) {
    StreamMemo& memo = sharing.memo;
    const Segment& part = memo.segments()[segment];
    if (memo.too_long(segment)) {
        finished = runner.run(part.last) == RunStatus::finished;
        return;
    }
    if (const Course* const course = find_course(sharing)) {
        sink.follow(course->serial);
        runner.skip(part.last, course->end_registers(), part.written);
        return;
    }
    SerialRun run;
    LoadedWords loads;
    sink.record(run, loads, memo.analysis());
    finished = runner.run(part.last) == RunStatus::finished;
    sink.stop();
    if (run.busy.size() > longest_serial_run) {
        return memo.set_too_long(segment);
    }
    Course course(sharing.inputs, loads.all(), {}, runner.registers(), part.written);
    course.serial = std::move(run);
    memo.add_course(segment, sharing.inputs, std::move(course));
}

template <class Table>
void multiply(Table& table, std::int64_t factor) {
    for (auto& row : table) {
        for (std::int64_t& entry : row) {
            entry *= factor;
        }
    }
}

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

std::vector<CauseCycles> StreamTiming::all_causes() const {
    std::vector<CauseCycles> all = causes;
    for (const RepeatedCharges& segment : repeated) {
        for (const CauseCharge& charge : *segment.charges) {
            const auto instruction = static_cast<std::size_t>(std::int64_t{segment.first} + charge.instruction);
            all[instruction][static_cast<std::size_t>(charge.cause)] += segment.times * charge.cycles;
        }
    }
    return all;
}

std::vector<CommandCounts> StreamTiming::all_commands() const {
    std::vector<CommandCounts> all = commands;
    for (const RepeatedCharges& segment : repeated) {
        for (const CommandCharge& charge : *segment.commands) {
            const auto instruction = static_cast<std::size_t>(std::int64_t{segment.first} + charge.instruction);
            all[instruction][static_cast<std::size_t>(charge.command)] += segment.times * charge.count;
        }
    }
    return all;
}

std::int64_t TimingModel::pass_cycles(const PassForm& form, std::int64_t n) const {
    const auto [streaming, chain, overhead] = pass_parts(form, n);
    return std::max<std::int64_t>(1, streaming + chain + overhead);
}

std::array<std::int64_t, 3> TimingModel::pass_parts(const PassForm& form, std::int64_t n) const {
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
    return {streaming, chain, machine_.vector_unit.pass_overhead};
}

TimingResult TimingModel::run(const Program& program, std::int64_t argument_base, std::span<const std::int32_t> memory,
                              const TimingOptions& options, TimingMemo* memo) const {
    Submission submission{*this, machine_, program, memory};
    submission.increments.resize(program.producer.size());
    TimingResult result;
    result.streams.resize(program.streams.size());
    result.channels.resize(static_cast<std::size_t>(machine_.organisation.channels));

    std::vector<Access>* const accesses = options.accesses ? &result.accesses : nullptr;

    const auto explanation = options.explain ? std::make_shared<Explanation>() : nullptr;
    if (explanation != nullptr) {
        submission.recording = &explanation->recording;
        submission.sources.resize(program.producer.size());
    }

    // Channels and segments are shared where nothing but the totals is asked for; for an explanation the channels of a stream that do the same.
    const bool together = options.share_channels && !options.trace && !options.accesses && options.instruction_limit == no_instruction_limit;
    const bool share = together && !options.explain && ChannelTiming(machine_, 0, nullptr, nullptr, false).has_outlook() &&
                       machine_.controller_words() <= std::numeric_limits<std::int32_t>::max();
    std::optional<TimingMemo> own_memo;
    if (share && (memo == nullptr || options.instruction_commands)) {  // what is remembered has no counts
        memo = &own_memo.emplace(program);
    }
    if (share) {
        memo->begin();
    }
    std::vector<std::optional<Sharing>> sharing(program.streams.size());
    std::vector<std::vector<Channels>> channels(program.streams.size());
    std::vector<std::unique_ptr<Runner<SerialSink>>> serial(program.streams.size());
    for (std::size_t s = 0; s < program.streams.size(); ++s) {
        const Stream& stream = program.streams[s];
        const int number = static_cast<int>(s);
        StreamTiming& timing = result.streams[s];
        timing.engine = stream.engine;
        std::size_t lanes = 1;
        if (share && stream.engine != Engine::link) {
            sharing[s].emplace(memo->stream(s), memo->submission(), timing.repeated, options.instruction_commands);
        }
        if (stream.engine == Engine::channel) {
            timing.causes.resize(stream.operations.size());
            timing.commands.resize(options.instruction_commands ? stream.operations.size() : 0);
            const auto groups = channel_groups(stream, machine_.organisation.channels, together);
            lanes = groups.size();
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                const int channel = groups[lane].front();
                const ChannelTiming start(machine_, channel, timing.causes.data(), options.trace ? &result.trace : nullptr, options.step_bursts,
                                          options.instruction_commands ? timing.commands.data() : nullptr);
                channels[s].push_back({groups[lane], std::make_unique<Runner<ChannelSink>>(submission, number, channel, argument_base,
                                                                                          options.instruction_limit, lane, start, channel, accesses)});
                if (options.explain) {
                    std::uint32_t mask = 0;
                    for (const int alike : groups[lane]) {
                        mask |= std::uint32_t{1} << alike;
                    }
                    channels[s].back().run->sink.explain(number, mask);
                }
            }
            result.simulated_channels += static_cast<std::int32_t>(lanes);
        } else {
            timing.busy.resize(stream.operations.size());
            timing.bytes.resize(stream.engine == Engine::link ? stream.operations.size() : 0);
            serial[s] = std::make_unique<Runner<SerialSink>>(submission, number, 0, argument_base, options.instruction_limit, 0, timing);
            if (options.explain) {
                serial[s]->sink.explain(stream.engine == Engine::vector ? LaneKind::vector : LaneKind::link, number);
            }
        }
        for (std::size_t signal = 0; signal < program.producer.size(); ++signal) {
            if (program.producer[signal] == static_cast<std::int32_t>(s)) {
                submission.increments[signal].resize(lanes);
                if (options.explain) {
                    submission.sources[signal].resize(lanes);
                }
            }
        }
    }

    for (bool finished = false; !finished;) {
        finished = true;
        const std::uint64_t before = submission.progress;
        for (std::size_t s = 0; s < program.streams.size(); ++s) {
            for (Channels& group : channels[s]) {
                finished &= sharing[s] ? group.run->advance(*sharing[s]) : group.run->advance();
            }
            finished &= serial[s] == nullptr || (sharing[s] ? serial[s]->advance(*sharing[s]) : serial[s]->advance());
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

    EventRef last;
    std::int64_t last_charge = 0;
    const auto ends = [&](std::int64_t end, EventRef event, std::int64_t charge) {
        if (!last.exists() || end > result.cycles) {
            last = event;
            last_charge = charge;
        }
        result.cycles = std::max(result.cycles, end);
    };
    for (std::size_t s = 0; s < program.streams.size(); ++s) {
        StreamTiming& timing = result.streams[s];
        for (Channels& group : channels[s]) {
            const ChannelSummary summary = group.run->sink.finish();
            ends(summary.end + summary.refresh_charge, options.explain ? group.run->sink.last_event() : EventRef{}, summary.refresh_charge);
            timing.end = std::max(timing.end, summary.end + summary.refresh_charge);
            result.shared_segments += group.run->shared_segments;
            for (const int channel : group.numbers) {
                result.channels[static_cast<std::size_t>(channel)] = summary;
            }
        }
        if (channels[s].size() == 1) {  // one simulation stood for all its channels
            const auto copies = static_cast<std::int64_t>(channels[s].front().numbers.size());
            multiply(timing.causes, copies);
            multiply(timing.commands, copies);
            for (RepeatedCharges& repeated : timing.repeated) {
                repeated.times *= copies;
            }
        }
        if (serial[s] != nullptr) {
            timing.end = serial[s]->sink.end();
            ends(timing.end, options.explain ? serial[s]->sink.last_event() : EventRef{}, 0);
        }
    }
    if (explanation != nullptr) {
        if (last.exists()) {
            explanation->path = explanation->recording.path(last, last_charge);
        }
        result.explanation = explanation;
    }
    for (ChannelSummary& channel : result.channels) {
        std::int64_t& tail = channel.causes[static_cast<std::size_t>(Cause::tail)];
        tail = result.cycles - channel.end - channel.refresh_charge;
        channel.open_cycles += channel.rows_open ? tail : 0;
    }
    const auto earlier = [](const auto& a, const auto& b) { return std::pair(a.cycle, a.channel) < std::pair(b.cycle, b.channel); };
    std::stable_sort(result.trace.begin(), result.trace.end(), earlier);
    std::stable_sort(result.accesses.begin(), result.accesses.end(), earlier);
    return result;
}

}  // namespace wordline
