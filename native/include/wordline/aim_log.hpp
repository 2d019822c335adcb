// What one channel of profile `aim-simulator` adds to an explanation: its commands, barriers and completions, and what held each.
#pragma once

#include <cstdint>
#include <vector>

#include "wordline/critical_path.hpp"

namespace wordline {

class AimLog {
public:
    static constexpr std::int32_t host = 0;  // lane on which the decodings are, in order of line

    // On a lane of its own.
    AimLog(Recording& recording, std::uint32_t channels) : recording_(recording), lane_(recording.add_lane(LaneKind::channel, -1, channels)) {}

    // A command or burst. `held`: what the banks say of its first cycle; `pitch`: what holds the others apart.
    void command(Event event, const Binding& held, std::int64_t pitch_cycles);
    // TMOD, PREA or REFab of a refresh.
    void refresh(DramCommand command, std::int64_t cycle, const Binding& held);
    // SYNC or EOC.
    void barrier(std::int64_t cycle, std::uint32_t line);

    // A read completes `rule` after the last command, but at the earliest in the cycle after the one before it, `previous`.
    void read(std::int64_t due, Rule rule, std::int64_t previous) { read(due, {last_, rule}, previous); }
    // One that is answered from a write of line `line`.
    void forwarded_read(std::int64_t due, std::uint32_t line, std::int64_t previous) { read(due, {decoding(line), Rule::completion}, previous); }
    // The same of reads that a barrier holds up, which complete in order after it.
    void put_off(Rule rule) { put_off_.push_back({last_, rule}); }
    void put_off_forwarded(std::uint32_t line) { put_off_.push_back({decoding(line), Rule::completion}); }
    void read_put_off(std::size_t index, std::int64_t due, std::int64_t previous) { read(due, put_off_[index], previous); }
    void forget_put_off() { put_off_.clear(); }
    // The last command counts as a write until cycle `done`.
    void write(std::int64_t done, Rule rule);

    // What calls back: the last read, or the barrier, which completes in cycle `done`.
    void read_calls_back() { called_back_ = read_; }
    void barrier_calls_back(std::int64_t done, std::int64_t reads, std::int64_t writes);
    EventRef called_back() const { return called_back_; }
    EventRef last() const { return last_; }

private:
    struct Cause {
        EventRef from;
        Rule rule;
    };

    EventRef decoding(std::uint32_t line) const;
    void read(std::int64_t due, const Cause& cause, std::int64_t previous);
    // Sets what held an event in its first cycle, by rules or by the channel's order.
    void hold(Event& event, const Binding& held) const;

    Recording& recording_;
    std::int32_t lane_;
    EventRef last_{};         // command or barrier
    EventRef barrier_{};
    EventRef read_{};         // completion of the youngest read
    EventRef called_back_{};
    Cause write_{};           // of the write that completes last
    std::int64_t write_done_ = -1;
    std::vector<Cause> put_off_;
};

}  // namespace wordline
