#include "wordline/aim_log.hpp"

#include <algorithm>

namespace wordline {

EventRef AimLog::decoding(std::uint32_t line) const {
    const std::vector<Event>& decodings = recording_.lanes()[host].events;
    const auto found = std::lower_bound(decodings.begin(), decodings.end(), line,
                                        [](const Event& event, std::uint32_t wanted) { return event.instruction < wanted; });
    return {host, static_cast<std::int32_t>(found - decodings.begin())};
}

void AimLog::hold(Event& event, const Binding& held) const {
    if (held.at == event.first) {
        event.from = recording_.command_at(lane_, held.from);
        event.rule = held.rule;
        return;
    }
    const std::int64_t last = last_.exists() ? recording_.at(last_).last : -1;
    if (last_.exists() && last == event.first - 1) {
        event.from = last_;
        return;
    }
    if (event.refresh) {
        event.due = true;
        return;
    }
    const std::int64_t decoded = recording_.at(event.before).first;
    if (decoded == event.first) {
        event.from = event.before;
        event.rule = Rule::decode;
        return;
    }
    event.from = last > decoded ? last_ : event.before;
    event.rule = Rule::turn;
}

void AimLog::command(Event event, const Binding& held, std::int64_t pitch_cycles) {
    event.kind = EventKind::command;
    event.last = event.first + (event.count - 1) * pitch_cycles;
    event.before = decoding(event.instruction);
    hold(event, held);
    last_ = recording_.add(lane_, event);
}

void AimLog::refresh(DramCommand command, std::int64_t cycle, const Binding& held) {
    Event event{EventKind::command, command, cycle, cycle};
    event.refresh = true;
    event.instruction = last_.exists() ? recording_.at(last_).instruction : 1;
    hold(event, held);
    last_ = recording_.add(lane_, event);
}

void AimLog::barrier(std::int64_t cycle, std::uint32_t line) {
    Event event{EventKind::barrier, DramCommand::act, cycle, cycle};
    event.instruction = line;
    event.before = decoding(line);
    hold(event, {});
    last_ = barrier_ = recording_.add(lane_, event);
}

void AimLog::read(std::int64_t due, const Cause& cause, std::int64_t previous) {
    const bool in_turn = due > previous;
    const std::int64_t done = in_turn ? due : previous + 1;
    const Event& source = recording_.at(cause.from);
    Event event{EventKind::landing, source.command, done, done};
    event.instruction = source.instruction;
    event.from = in_turn ? cause.from : read_;
    event.rule = in_turn ? cause.rule : Rule::completion;
    read_ = recording_.add(lane_, event);
}

void AimLog::write(std::int64_t done, Rule rule) {
    if (done > write_done_ || (done == write_done_ && rule < write_.rule)) {
        write_done_ = done;
        write_ = {last_, rule};
    }
}

void AimLog::barrier_calls_back(std::int64_t done, std::int64_t reads, std::int64_t writes) {
    Event event{EventKind::landing, DramCommand::act, done, done};
    event.kind = EventKind::barrier;
    event.instruction = recording_.at(barrier_).instruction;
    event.rule = Rule::completion;
    event.from = barrier_;
    Rule behind = Rule::completion;
    if (reads + 1 == done && read_.exists()) {
        event.from = read_;
        behind = recording_.at(read_).rule;
    }
    if (writes + 1 == done && (event.from.index == barrier_.index || write_.rule < behind)) {
        const Event& source = recording_.at(write_.from);
        Event end{EventKind::landing, source.command, writes, writes};
        end.instruction = source.instruction;
        end.from = write_.from;
        end.rule = write_.rule;
        event.from = recording_.add(lane_, end);
    }
    called_back_ = read_ = recording_.add(lane_, event);
}

}  // namespace wordline
