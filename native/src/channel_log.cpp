#include "wordline/channel_log.hpp"

namespace wordline {

void ChannelLog::slot(std::int64_t cycle, std::uint32_t instruction) {
    Event event{EventKind::slot, DramCommand::act, cycle, cycle};
    event.instruction = number(instruction);
    event.before = slot_;
    event.from = stream_;
    if (released_by_.exists() && recording_.at(released_by_).last + 1 == cycle) {
        event.from = released_by_;
        event.rule = Rule::signal;
    }
    released_by_ = {};
    slot_ = stream_ = recording_.add(lane_, event);
}

// Where the interval of a rule begins. ACT16 counts as sixteen activates, the last four of them three times nFAW later: then the rule counts
// four times from it.
EventRef ChannelLog::base_of(const Binding& held, std::int32_t& times) const {
    EventRef base = recording_.command_at(lane_, held.from);
    if (held.rule == Rule::nFAW && (!base.exists() || recording_.at(base).command != DramCommand::act)) {
        times = 4;
        base = recording_.command_at(lane_, held.from - 3 * (held.at - held.from));
    }
    return base;
}

void ChannelLog::command(Event event, std::int64_t pitch_cycles, const Binding& held, std::int64_t now) {
    event.last = event.first + (event.count - 1) * pitch_cycles;
    event.instruction = number(event.instruction);
    event.before = slot_;
    if (held.at == event.first) {
        event.from = base_of(held, event.times);
        event.rule = held.rule;
    } else if (!event.refresh && event.first == now) {
        event.from = stream_;
    } else if (command_.exists() && recording_.at(command_).last == event.first - 1) {
        event.from = command_;
    } else {
        event.due = true;
    }
    command_ = recording_.add(lane_, event);
    if (event.first >= now) {
        stream_ = command_;
    }
    if (!event.refresh) {
        slot_ = command_;
    }
}

void ChannelLog::land(std::int64_t latency, Rule rule, std::int64_t landing) {
    const Event& source = recording_.at(command_);
    Event event{EventKind::landing, source.command, source.last + latency, source.last + latency};
    event.instruction = source.instruction;
    event.from = command_;
    event.rule = rule;
    event.from = recording_.add(lane_, event);
    event.first = event.last += landing;
    event.rule = Rule::landing;
    landed_ = recording_.add(lane_, event);
}

EventRef ChannelLog::signal() const {
    return landed_.exists() && recording_.at(landed_).last >= recording_.at(slot_).first ? landed_ : slot_;
}

void ChannelLog::end(std::int64_t end, std::int64_t refreshed, std::int64_t refresh_command) {
    Event event{EventKind::end, DramCommand::act, end, end};
    event.before = slot_;
    event.instruction = slot_.exists() ? recording_.at(slot_).instruction : 0;
    if (end == refreshed) {
        event.from = recording_.command_at(lane_, refresh_command);
        event.rule = Rule::nRFC;
    } else if (landed_.exists() && recording_.at(landed_).last == end) {
        event.from = landed_;
        event.rule = Rule::landing;
    } else {
        event.from = stream_;
    }
    end_ = recording_.add(lane_, event);
}

void SerialLog::slot(std::int64_t cycle, std::uint32_t instruction, EventRef signal) {
    Event event{EventKind::slot, DramCommand::act, cycle, cycle};
    event.instruction = instruction;
    event.before = event.from = last_;
    if (signal.exists() && recording_.at(signal).last + 1 == cycle) {
        event.from = signal;
        event.rule = Rule::signal;
    }
    last_ = recording_.add(lane_, event);
}

void SerialLog::busy(EventKind kind, std::int64_t cycle, const std::array<std::int64_t, 3>& parts, std::uint32_t instruction) {
    Event event{kind, DramCommand::act, cycle, cycle + parts[0] + parts[1] + parts[2]};
    event.parts = parts;
    event.instruction = instruction;
    event.before = event.from = last_;
    last_ = recording_.add(lane_, event);
}

void SerialLog::land(std::int64_t cycle, Rule rule) {
    if (landed_.exists() && recording_.at(landed_).last >= cycle) {
        return;
    }
    Event event{EventKind::landing, DramCommand::act, cycle, cycle};
    event.instruction = recording_.at(last_).instruction;
    event.from = last_;
    event.rule = rule;
    landed_ = recording_.add(lane_, event);
}

EventRef SerialLog::signal() const {
    return landed_.exists() && recording_.at(landed_).last >= recording_.at(last_).first ? landed_ : last_;
}

EventRef SerialLog::end(std::int64_t cycle) {
    Event event{EventKind::end, DramCommand::act, cycle, cycle};
    event.before = last_;
    event.instruction = last_.exists() ? recording_.at(last_).instruction : 0;
    const bool lands_last = landed_.exists() && recording_.at(landed_).last == cycle;
    event.from = lands_last ? landed_ : last_;
    event.rule = lands_last ? Rule::link_latency : Rule::issue;
    return recording_.add(lane_, event);
}

}  // namespace wordline
