#include "wordline/functional.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <string>

#include "wordline/error.hpp"
#include "wordline/text.hpp"

namespace wordline {

namespace {

constexpr std::size_t signal_count = 256;
constexpr int spins_before_sleep = 2000;  // some 50 us: longer than most vector passes, shorter than a time slice

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Two threads may touch controller memory and shared registers; programs order such accesses by signals, and those that do not get some value.
std::int32_t load_relaxed(std::int32_t& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); }
void store_relaxed(std::int32_t& word, std::int32_t value) { std::atomic_ref(word).store(value, std::memory_order_relaxed); }

struct alignas(64) SignalCounts {  // of one stream on one channel
    std::array<std::atomic<std::int64_t>, signal_count> counts{};
};

}  // namespace

class FunctionalRun;

// One stream on one channel.
class FunctionalSink {
public:
    FunctionalSink(FunctionalModel& model, FunctionalRun& run, int stream, int channel);

    bool wait(int signal, std::int32_t value, std::uint32_t instruction);
    void signal(int signal, std::uint32_t instruction);
    void scalar(Opcode, std::uint32_t) {}
    void command(const ChannelCommand& c);
    void pass(const PassCommand& p) { model_.vector_unit_.run(p, model_.shared_.data()); }
    void transfer(const TransferCommand& t);
    std::int32_t load_word(std::int64_t address, std::uint32_t) { return load_relaxed(model_.controller_memory_.data()[address]); }
    void store_word(std::int64_t address, std::int32_t value) { store_relaxed(model_.controller_memory_.data()[address], value); }
    std::int32_t load_shared(int shared) { return load_relaxed(model_.shared_.data()[shared]); }

    const SignalCounts& counts() const { return counts_; }

private:
    std::uint16_t* scratch_elements(std::int32_t offset) { return reinterpret_cast<std::uint16_t*>(scratch_ + offset); }
    void read_bank(const ChannelCommand& c, std::uint16_t* to);
    void write_bank(const ChannelCommand& c, const std::uint16_t* from);
    void write_element(const ChannelCommand& c);

    FunctionalModel& model_;
    FunctionalRun& run_;
    int stream_, channel_;
    FunctionalModel::Channel& state_;
    std::byte* scratch_;
    SignalCounts counts_;
    std::array<std::int64_t, signal_count> known_{};  // lower bounds of signals, as last seen
};

// One execution of a program.
class FunctionalRun {
public:
    FunctionalRun(FunctionalModel& model, const Program& program, std::int64_t argument_base, std::uint64_t instruction_limit) : program_(program) {
        const int workers = model.workers_.count();
        const int channels = model.machine_.organisation.channels;
        assigned_.resize(static_cast<std::size_t>(workers));
        idle_ = std::make_unique<Idle[]>(static_cast<std::size_t>(workers));
        producers_.resize(program.streams.size());
        for (std::size_t s = 0; s < program.streams.size(); ++s) {
            const Stream& stream = program.streams[s];
            const bool on_channels = stream.engine == Engine::channel;
            for (int channel = 0; channel < (on_channels ? channels : 1); ++channel) {
                if (on_channels && (stream.channel_mask >> channel & 1U) == 0) {
                    continue;
                }
                tasks_.push_back(std::make_unique<Task>(model, *this, program, static_cast<int>(s), channel, argument_base, instruction_limit));
                const int worker = on_channels ? channel * workers / channels : 0;
                assigned_[static_cast<std::size_t>(worker)].push_back(tasks_.back().get());
                producers_[s].push_back(tasks_.back().get());
            }
        }
    }

    void work(int worker);

    // Throws what the run ended with, if it did not end well.
    void finish() const {
        if (interrupted_) {
            throw Interrupted{};
        }
        for (const auto& task : tasks_) {
            if (task->fault) {
                throw *task->fault;
            }
        }
        for (const auto& task : tasks_) {
            if (!task->ended) {
                throw Fault(task->runner.stream(), task->runner.channel(), task->runner.position(),
                            "deadlock: every stream that has not ended waits for a signal");
            }
        }
    }

    // The smallest count of the signal over its producing stream's channels; 0 when nobody produces it.
    std::int64_t signal_value(int signal) const {
        const std::int32_t producer = program_.producer[static_cast<std::size_t>(signal)];
        if (producer < 0) {
            return 0;
        }
        std::int64_t value = std::numeric_limits<std::int64_t>::max();
        for (const Task* task : producers_[static_cast<std::size_t>(producer)]) {
            value = std::min(value, task->sink.counts().counts[static_cast<std::size_t>(signal)].load(std::memory_order_acquire));
        }
        return value;
    }

    void signalled() {
        version_.fetch_add(1);
        version_.notify_all();
    }

private:
    struct Task {
        Task(FunctionalModel& model, FunctionalRun& run, const Program& program, int stream, int channel, std::int64_t argument_base,
             std::uint64_t instruction_limit)
            : sink(model, run, stream, channel), runner(model.machine(), program, stream, channel, argument_base, sink, instruction_limit) {}
        FunctionalSink sink;
        StreamRunner<FunctionalSink> runner;
        bool ended = false;
        std::optional<Fault> fault;
    };
    static constexpr std::int64_t active = -1, gone = -2;
    struct alignas(64) Idle {
        std::atomic<std::int64_t> since{active};  // the version at which the worker had nothing to run; `gone`: its tasks have ended
    };

    static bool advance(Task& task);
    void run_tasks(int worker);
    bool wait_for_signal(int worker, std::uint32_t seen);
    bool all_idle(std::uint32_t seen) const;
    bool others_work() const;

    const Program& program_;
    std::vector<std::unique_ptr<Task>> tasks_;  // in stream, then channel order
    std::vector<std::vector<Task*>> assigned_;   // by worker
    std::vector<std::vector<const Task*>> producers_;  // by stream
    std::unique_ptr<Idle[]> idle_;
    alignas(64) std::atomic<std::uint32_t> version_{0};  // counts signals, and workers that have ended
    std::atomic<bool> deadlock_{false}, interrupted_{false};
};

FunctionalSink::FunctionalSink(FunctionalModel& model, FunctionalRun& run, int stream, int channel)
    : model_(model),
      run_(run),
      stream_(stream),
      channel_(channel),
      state_(model.channels_[static_cast<std::size_t>(channel)]),
      scratch_(model.scratch_.data() + static_cast<std::ptrdiff_t>(channel) * model.machine_.scratch.bytes_per_channel) {}

bool FunctionalSink::wait(int signal, std::int32_t value, std::uint32_t) {
    std::int64_t& known = known_[static_cast<std::size_t>(signal)];
    if (known < value) {
        known = run_.signal_value(signal);
    }
    return known >= value;
}

void FunctionalSink::signal(int signal, std::uint32_t) {
    std::atomic<std::int64_t>& count = counts_.counts[static_cast<std::size_t>(signal)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    run_.signalled();
}

void FunctionalSink::read_bank(const ChannelCommand& c, std::uint16_t* to) {
    const std::uint32_t* block = model_.dram_.block(channel_, c.row, c.column) + c.bank;
    for (std::int32_t i = 0; i < c.count; ++i, block += block_words, to += lanes_per_column) {
        for (int w = 0; w < 8; ++w) {
            const std::uint32_t word = block[banks_per_block * w];
            to[w] = static_cast<std::uint16_t>(word);
            to[w + 8] = static_cast<std::uint16_t>(word >> 16);
        }
    }
}

void FunctionalSink::write_bank(const ChannelCommand& c, const std::uint16_t* from) {
    std::uint32_t* block = model_.dram_.block(channel_, c.row, c.column) + c.bank;
    for (std::int32_t i = 0; i < c.count; ++i, block += block_words, from += lanes_per_column) {
        for (int w = 0; w < 8; ++w) {
            block[banks_per_block * w] = std::uint32_t{from[w]} | std::uint32_t{from[w + 8]} << 16;
        }
    }
}

void FunctionalSink::write_element(const ChannelCommand& c) {
    std::uint32_t* const block = model_.dram_.block(channel_, c.row, c.column) + c.bank;
    const std::uint32_t element = *scratch_elements(c.scratch);
    for (int w = 0; w < 8; ++w) {
        std::uint32_t& word = block[banks_per_block * w];
        if ((c.lanes >> w & 1) != 0) {
            word = (word & 0xFFFF0000U) | element;
        }
        if ((c.lanes >> (w + 8) & 1) != 0) {
            word = (word & 0x0000FFFFU) | element << 16;
        }
    }
}

void FunctionalSink::command(const ChannelCommand& c) {
    const Kernels& k = model_.kernels_;
    float* const buffer = state_.buffer.data() + std::ptrdiff_t{c.buffer} * lanes_per_column;
    float* const accumulators = state_.accumulators.data() + std::ptrdiff_t{c.accumulator} * banks_per_block;
    const std::size_t elements = static_cast<std::size_t>(c.count) * lanes_per_column;
    switch (c.opcode) {
        case Opcode::Mac16:
            k.mac16(model_.dram_.block(channel_, c.row, c.column), buffer, accumulators, c.count);
            break;
        case Opcode::Mac:
            accumulators[c.bank] = k.mac_bank(model_.dram_.block(channel_, c.row, c.column), c.bank, buffer, accumulators[c.bank], c.count);
            break;
        case Opcode::Rd:
            read_bank(c, scratch_elements(c.scratch));
            break;
        case Opcode::Wr:
            write_bank(c, scratch_elements(c.scratch));
            break;
        case Opcode::Wre:
            write_element(c);
            break;
        case Opcode::Rdcp: {
            ChannelCommand one = c;
            one.count = 1;
            for (std::int32_t i = 0; i < c.count; ++i, ++one.column) {
                std::uint16_t column[lanes_per_column];
                read_bank(one, column);
                k.widen_bf16(column, buffer + std::ptrdiff_t{i} * lanes_per_column, lanes_per_column);
            }
            break;
        }
        case Opcode::Wrcp: {
            ChannelCommand one = c;
            one.count = 1;
            for (std::int32_t i = 0; i < c.count; ++i, ++one.column) {
                std::uint16_t column[lanes_per_column];
                for (int lane = 0; lane < lanes_per_column; ++lane) {  // the buffer holds widened bf16: nothing is lost
                    column[lane] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(buffer[i * lanes_per_column + lane]) >> 16);
                }
                write_bank(one, column);
            }
            break;
        }
        case Opcode::Wrgb:
            k.widen_bf16(scratch_elements(c.scratch), buffer, elements);
            break;
        case Opcode::Wrmac16:
            for (std::int32_t i = 0; i < c.count; ++i) {
                k.widen_bf16(scratch_elements(c.scratch) + (c.field != 0 ? i * banks_per_block : 0), accumulators + std::ptrdiff_t{i} * banks_per_block,
                             banks_per_block);
            }
            break;
        case Opcode::Rdmac16:
            k.narrow_bf16(accumulators, scratch_elements(c.scratch), elements);
            break;
        default:  // row commands, refresh and mode switches change no data
            break;
    }
}

void FunctionalSink::transfer(const TransferCommand& t) {
    if (t.blocks == 0) {
        return;
    }
    const bool out = t.opcode == Opcode::Xout;
    const auto total = static_cast<std::uint64_t>(t.blocks) * static_cast<std::uint64_t>(t.bytes);
    std::byte* host = model_.windows_.find(t.host, total, out);
    if (host == nullptr) {
        throw Fault(stream_, channel_, t.instruction,
                    "host address " + hexadecimal(t.host) + " with " + std::to_string(total) + " bytes lies in no open window");
    }
    const std::int64_t space = model_.machine_.scratch_bytes();
    std::byte* const scratch = model_.scratch_.data();
    for (std::int64_t block = 0; block < t.blocks; ++block) {
        std::int64_t start = (t.scratch + block * t.stride) % space;
        start += start < 0 ? space : 0;
        const auto first = static_cast<std::size_t>(std::min(t.bytes, space - start));
        const std::size_t rest = static_cast<std::size_t>(t.bytes) - first;  // goes on at the start of scratch
        if (out) {
            std::memcpy(host, scratch + start, first);
            std::memcpy(host + first, scratch, rest);
        } else {
            std::memcpy(scratch + start, host, first);
            std::memcpy(scratch, host + first, rest);
        }
        host += t.bytes;
    }
}

// Runs a task until it waits or ends; true when it has ended.
bool FunctionalRun::advance(Task& task) {
    try {
        task.ended = task.runner.run() == RunStatus::finished;
    } catch (const Fault& fault) {
        task.fault = fault;
    } catch (const std::exception& error) {  // such as no memory left for a pass
        task.fault.emplace(task.runner.stream(), task.runner.channel(), task.runner.position(), error.what());
    }
    return task.ended || task.fault;
}

// Only the caller's thread, worker 0, can be asked whether to go on. The other workers wake it for that, and end when it says so.
void FunctionalRun::work(int worker) {
    const auto ask = [this] {
        signalled();
        return interrupted_.load();
    };
    const std::optional<InterruptionScope> scope = worker == 0 ? std::nullopt : std::optional<InterruptionScope>(std::in_place, ask);
    try {
        run_tasks(worker);
        while (worker == 0) {
            const std::uint32_t seen = version_.load();
            if (!others_work()) {
                return;
            }
            version_.wait(seen);
            interruption_point();
        }
    } catch (const Interrupted&) {
        interrupted_.store(true);
        signalled();
    }
}

void FunctionalRun::run_tasks(int worker) {
    std::vector<Task*> live = assigned_[static_cast<std::size_t>(worker)];
    while (!live.empty()) {
        const std::uint32_t seen = version_.load();
        std::erase_if(live, [](Task* task) { return advance(*task); });
        if (!live.empty() && version_.load() == seen && !wait_for_signal(worker, seen)) {
            return;  // deadlock, or interrupted
        }
        interruption_point();
    }
    idle_[static_cast<std::size_t>(worker)].since.store(gone);
    signalled();  // the others may now wait for ever, and have to notice
}

bool FunctionalRun::others_work() const {
    if (deadlock_.load()) {
        return false;
    }
    for (std::size_t worker = 1; worker < assigned_.size(); ++worker) {
        if (idle_[worker].since.load() != gone) {
            return true;
        }
    }
    return false;
}

// Whether nobody has anything to run. A worker gives its last signals before it is seen idle or gone, so the version is compared last.
bool FunctionalRun::all_idle(std::uint32_t seen) const {
    for (std::size_t worker = 0; worker < assigned_.size(); ++worker) {
        const std::int64_t since = idle_[worker].since.load();
        if (since != gone && since != seen) {
            return false;
        }
    }
    return version_.load() == seen;
}

// Waits until a signal is given after version `seen`; false when that can no longer happen. Sleeping after a while lets the system run the
// other workers here when their processors are busy with something else.
bool FunctionalRun::wait_for_signal(int worker, std::uint32_t seen) {
    std::atomic<std::int64_t>& own = idle_[static_cast<std::size_t>(worker)].since;
    own.store(seen);
    if (all_idle(seen)) {  // the last one to become idle finds out, and tells those who sleep
        deadlock_.store(true);
        signalled();
        return false;
    }
    for (int spins = 0; version_.load() == seen && spins < spins_before_sleep; ++spins) {
        pause();
    }
    version_.wait(seen);
    own.store(active);
    return !deadlock_.load() && !interrupted_.load();
}

FunctionalModel::FunctionalModel(const Machine& machine, int threads, SimdVariant variant)
    : machine_(machine),
      kernels_(Kernels::of(variant)),
      dram_(machine_.organisation),
      scratch_(static_cast<std::size_t>(machine_.scratch_bytes())),
      controller_memory_(static_cast<std::size_t>(machine_.controller_words())),
      shared_(static_cast<std::size_t>(machine_.command_processor.shared_registers)),
      vector_unit_(machine_, kernels_, scratch_),
      workers_(std::clamp(threads, 1, machine_.organisation.channels)) {
    for (std::int32_t channel = 0; channel < machine_.organisation.channels; ++channel) {
        channels_.push_back({AlignedArray<float>(static_cast<std::size_t>(machine_.buffer.columns) * lanes_per_column),
                             AlignedArray<float>(static_cast<std::size_t>(machine_.bank_unit.accumulators) * banks_per_block)});
    }
}

std::size_t FunctionalModel::row_bytes() const {
    const Machine::Organisation& o = machine_.organisation;
    return static_cast<std::size_t>(o.channels) * static_cast<std::size_t>(o.banks) * static_cast<std::size_t>(o.columns) *
           static_cast<std::size_t>(o.column_bytes);
}

void FunctionalModel::bank_write(std::int32_t first_row, std::int32_t rows, const std::byte* data) {
    const std::int32_t channels = machine_.organisation.channels;
    const std::size_t part = row_bytes() / static_cast<std::size_t>(channels);
    workers_.run([&](int worker) {
        for (std::int32_t channel = 0; channel < channels; ++channel) {
            if (channel * workers_.count() / channels != worker) {
                continue;
            }
            for (std::int32_t row = 0; row < rows; ++row) {
                const std::byte* const from = data + (static_cast<std::size_t>(row) * static_cast<std::size_t>(channels) + static_cast<std::size_t>(channel)) * part;
                kernels_.image_to_blocks(reinterpret_cast<const std::uint16_t*>(from), dram_.block(channel, first_row + row, 0), machine_.organisation.columns);
            }
        }
    });
}

void FunctionalModel::bank_read(std::int32_t first_row, std::int32_t rows, std::byte* data) {
    const std::int32_t channels = machine_.organisation.channels;
    const std::size_t part = row_bytes() / static_cast<std::size_t>(channels);
    for (std::int32_t row = 0; row < rows; ++row) {
        for (std::int32_t channel = 0; channel < channels; ++channel, data += part) {
            kernels_.blocks_to_image(dram_.block(channel, first_row + row, 0), reinterpret_cast<std::uint16_t*>(data), machine_.organisation.columns);
        }
    }
}

void FunctionalModel::bank_fill_zero(std::int32_t first_row, std::int32_t rows, std::uint32_t channel_mask) {
    for (std::int32_t channel = 0; channel < machine_.organisation.channels; ++channel) {
        if ((channel_mask >> channel & 1U) != 0) {
            dram_.zero_rows(channel, first_row, rows);
        }
    }
}

void FunctionalModel::reset() {
    bank_fill_zero(0, machine_.organisation.rows, ~std::uint32_t{0});
    scratch_.zero();
    controller_memory_.zero();
    shared_.zero();
    for (Channel& channel : channels_) {
        channel.buffer.zero();
        channel.accumulators.zero();
    }
}

void FunctionalModel::execute(const Program& program, std::int64_t argument_base, std::uint64_t instruction_limit) {
    shared_.zero();
    FunctionalRun run(*this, program, argument_base, instruction_limit);
    workers_.run([&run](int worker) { run.work(worker); });
    run.finish();
}

std::uint32_t FunctionalModel::read_stream(std::int32_t first_row, std::int32_t rows) {
    const std::int32_t channels = machine_.organisation.channels;
    std::atomic<std::uint32_t> sum{0};
    workers_.run([&](int worker) {
        for (std::int32_t channel = 0; channel < channels; ++channel) {
            if (channel * workers_.count() / channels == worker) {
                sum += kernels_.read_stream(dram_.block(channel, first_row, 0), static_cast<std::size_t>(rows) * row_bytes() / static_cast<std::size_t>(channels));
            }
        }
    });
    return sum;
}

}  // namespace wordline
