// What one channel of profile `corrected` adds to an explanation: its commands, issue slots and landings, and what held each.
#pragma once

#include <array>
#include <cstdint>

#include "wordline/critical_path.hpp"

namespace wordline {

class ChannelLog {
public:
    // On a lane of its own.
    ChannelLog(Recording& recording, std::int32_t stream, std::uint32_t channels)
        : recording_(recording), lane_(recording.add_lane(LaneKind::channel, stream, channels)) {}

    // What follows belongs to this line of a trace; without it, to the instruction that is given.
    void set_line(std::uint32_t line) { line_ = line; }

    // An instruction that takes the issue slot of cycle `cycle`.
    void slot(std::int64_t cycle, std::uint32_t instruction);
    // The next slot is that of a WAIT which this event releases.
    void wait(EventRef signal) { released_by_ = signal; }
    // A command or burst, before it changes anything. `held`: what the rules say; `now`: the stream's next issue slot.
    void command(Event event, std::int64_t pitch_cycles, const Binding& held, std::int64_t now);
    // The data of the last command are in scratch `latency` and then `landing` cycles after it.
    void land(std::int64_t latency, Rule rule, std::int64_t landing);
    // The slot of a SIGNAL has been added: the event that is its effect.
    EventRef signal() const;
    // The end of the channel in cycle `end`, with its last refresh over in cycle `refreshed`.
    void end(std::int64_t end, std::int64_t refreshed, std::int64_t refresh_command);
    EventRef last() const { return end_; }

private:
    std::uint32_t number(std::uint32_t instruction) const { return line_ != 0 ? line_ : instruction; }
    EventRef base_of(const Binding& held, std::int32_t& times) const;

    Recording& recording_;
    std::int32_t lane_;
    std::uint32_t line_ = 0;
    EventRef slot_{};       // last event of the stream that is no forced refresh
    EventRef stream_{};     // last event that took an issue slot
    EventRef command_{};    // last command
    EventRef landed_{};     // landing that ends last
    EventRef released_by_{};
    EventRef end_{};
};

// The same of the vector unit or the link, which do one thing at a time.
class SerialLog {
public:
    SerialLog(Recording& recording, LaneKind kind, std::int32_t stream) : recording_(recording), lane_(recording.add_lane(kind, stream, 0)) {}

    // An instruction that takes the slot of cycle `cycle`; a WAIT's is released by `signal`.
    void slot(std::int64_t cycle, std::uint32_t instruction, EventRef signal = {});
    // A pass or a transfer, which takes the sum of `parts`, but at least a cycle.
    void busy(EventKind kind, std::int64_t cycle, const std::array<std::int64_t, 3>& parts, std::uint32_t instruction);
    // The data of the last transfer have arrived in cycle `cycle`.
    void land(std::int64_t cycle, Rule rule);
    // The slot of a SIGNAL has been added: the event that is its effect.
    EventRef signal() const;
    EventRef end(std::int64_t cycle);

private:
    Recording& recording_;
    std::int32_t lane_;
    EventRef last_{};
    EventRef landed_{};
};

}  // namespace wordline
