#include "wordline/critical_path.hpp"

#include <algorithm>

namespace wordline {
namespace {

// Rules by which the one before takes its turn: what they cost is the turn of that one.
bool is_turn(Rule rule) { return rule > Rule::completion; }

// The parts from the last to the first; neighbours that say the same become one.
class Path {
public:
    explicit Path(const Recording& recording) : recording_(recording) {}

    void add(std::int64_t begin, std::int64_t end, Rule rule, std::int64_t times, EventRef whose) {
        if (begin == end) {
            return;
        }
        const Event& event = recording_.at(whose);
        if (!parts_.empty()) {
            PathPart& later = parts_.back();
            if (later.begin == end && later.rule == rule && later.lane == whose.lane && later.instruction == event.instruction &&
                later.kind == event.kind && later.command == event.command && later.bank == event.bank && later.row == event.row) {
                later.begin = begin;
                later.times += times;
                return;
            }
        }
        parts_.push_back({begin, end, times, whose.lane, rule, event.kind, event.command, event.bank, event.row, event.instruction});
    }

    std::vector<PathPart> in_order() {
        std::reverse(parts_.begin(), parts_.end());
        return std::move(parts_);
    }

private:
    const Recording& recording_;
    std::vector<PathPart> parts_;
};

}  // namespace

std::int32_t Recording::add_lane(LaneKind kind, std::int32_t stream, std::uint32_t channels) {
    lanes_.push_back({kind, stream, channels});
    return static_cast<std::int32_t>(lanes_.size()) - 1;
}

EventRef Recording::add(std::int32_t lane, const Event& event) {
    Lane& where = lanes_[static_cast<std::size_t>(lane)];
    where.events.push_back(event);
    const EventRef ref = where.last(lane);
    if (event.kind == EventKind::command) {
        where.commands.push_back(ref.index);
    }
    return ref;
}

EventRef Recording::command_at(std::int32_t lane, std::int64_t cycle) const {
    const Lane& where = lanes_[static_cast<std::size_t>(lane)];
    const auto earlier = [&](std::int32_t index, std::int64_t wanted) { return where.events[static_cast<std::size_t>(index)].last < wanted; };
    const auto found = std::lower_bound(where.commands.begin(), where.commands.end(), cycle, earlier);
    const bool exists = found != where.commands.end() && where.events[static_cast<std::size_t>(*found)].last == cycle;
    return exists ? EventRef{lane, *found} : EventRef{};
}

// `upto` is the cycle from which on all is explained. It is where the walk is, but after a refresh that nothing held: the path goes on with what
// its stream was doing in the cycle in which the refresh fell due, so of what ended later only the part before that cycle counts.
std::vector<PathPart> Recording::path(EventRef end, std::int64_t refresh_charge) const {
    Path path(*this);
    std::int64_t upto = at(end).first;
    path.add(upto, upto + refresh_charge, Rule::refresh_charge, 1, end);
    EventRef waiting = end;  // the last event passed that is no refresh
    for (EventRef here = end; here.exists();) {
        const Event& event = at(here);
        if (event.first < upto) {  // inside a burst, a pass or a transfer
            const std::int64_t inside = std::min(upto, event.last);
            if (event.kind == EventKind::pass || event.kind == EventKind::transfer) {
                std::int64_t begin = event.last;
                for (std::size_t part = event.parts.size(); part-- > 0;) {
                    const std::int64_t ends = begin;
                    begin -= event.parts[part];
                    const Rule rule = event.kind == EventKind::transfer ? Rule::link_bandwidth
                                                                        : static_cast<Rule>(static_cast<std::size_t>(Rule::vector_lanes) + part);
                    if (begin < inside) {
                        path.add(begin, std::min(ends, inside), rule, 1, here);
                    }
                }
            } else if (event.count > 1) {
                const std::int64_t pitch = (event.last - event.first) / (event.count - 1);
                path.add(event.first, inside, event.pitch, (inside - event.first + pitch - 1) / pitch, here);
            }
            upto = event.first;
        }
        if (!event.refresh) {
            waiting = here;
        }
        const bool due = event.due;
        const EventRef next = due ? at(waiting).before : event.from;
        const Rule rule = due ? Rule::nREFI : event.rule;
        const std::int64_t begin = next.exists() ? at(next).last : 0;
        if (begin < upto) {
            path.add(begin, upto, rule, due ? 1 : event.times, is_turn(rule) && next.exists() ? next : here);
            upto = begin;
        }
        if (due) {
            waiting = next;
        }
        here = next;
    }
    return path.in_order();
}

}  // namespace wordline
