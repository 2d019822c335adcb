#include <algorithm>
#include <string>

#include "wordline/aim_channel.hpp"
#include "wordline/error.hpp"

namespace wordline {
namespace {

constexpr std::int64_t fruitless_limit = 10'000;  // commands in a row that serve no request: no trace that ends comes near

bool is_ordinary(DramCommand command) { return command == DramCommand::rd || command == DramCommand::wr; }

bool reads_register(DramCommand command) { return command == DramCommand::rdmac16 || command == DramCommand::rdaf16; }

}  // namespace

AimChannel::AimChannel(const Machine& machine, int number, const TraceOptions& options, const std::string& trace_name, AimLog* log)
    : t_(machine.timing),
      rules_(machine.aim_simulator),
      banks_(machine),
      trace_name_(trace_name),
      step_bursts_(options.step_bursts),
      record_limit_(options.record_limit),
      number_(number),
      log_(log),
      refresh_at_(machine.aim_simulator.refresh ? std::int64_t{machine.timing.nREFI} - 1 : never) {}

// --- what the host sees --------------------------------------------------------------------------------------------------------------

bool AimChannel::offer(const TraceInstruction& instruction) {
    waiting_ = instruction;
    has_waiting_ = true;
    called_back_ = -1;
    return take_waiting();
}

// Takes what waits, as far as the queues allow in cycle now_; true if nothing waits any more.
bool AimChannel::take_waiting() {
    if (!has_waiting_) {
        return aim_requests_ <= rules_.queue_requests;
    }
    const bool barrier = waiting_.op != TraceOp::request;
    const TraceInstruction& w = waiting_;
    if (barrier || !is_ordinary(w.command)) {
        if (!read_.empty() || !write_.empty() || (!rules_.overtaking && !active_.empty())) {
            return false;
        }
        aim_.push_back({w.command, barrier, w.bank, w.row, w.count, w.line});
        aim_requests_ += w.count;
        has_waiting_ = false;
        return aim_requests_ <= rules_.queue_requests;
    }
    if (aim_requests_ > 0) {
        return false;
    }
    if (w.command == DramCommand::rd && !write_.empty() && rules_.read_forwarding) {
        answer_read(w.line);
        has_waiting_ = false;
        return true;
    }
    Queue& queue = w.command == DramCommand::rd ? read_ : write_;
    if (std::ssize(queue) >= rules_.queue_requests) {
        return false;
    }
    queue.push_back({w.command, w.bank, w.row, now_, w.line});
    has_waiting_ = false;
    return true;
}

std::int64_t AimChannel::settle() {
    run(never, Until::settled);
    return now_;
}

std::int64_t AimChannel::callback() {
    run(never, Until::called_back);
    while (barrier_issued_ >= 0) {  // completes once no write is under way; ordinary requests may still issue some
        const std::int64_t done = std::max({barrier_issued_ + 1, last_read_done_ + 1, writes_done_ + 1});
        run(done, Until::limit);
        if (writes_done_ < done) {
            if (log_ != nullptr) {
                log_->barrier_calls_back(done, last_read_done_, writes_done_);
            }
            barrier_issued_ = -1;
            called_back_ = last_read_done_ = done;
            for (std::size_t i = 0; i < reads_behind_barrier_.size(); ++i) {
                if (log_ != nullptr) {
                    log_->read_put_off(i, reads_behind_barrier_[i], last_read_done_);
                }
                last_read_done_ = std::max(reads_behind_barrier_[i], last_read_done_ + 1);
            }
            reads_behind_barrier_.clear();
            if (log_ != nullptr) {
                log_->forget_put_off();
            }
        }
    }
    return called_back_;
}

// --- repetition ----------------------------------------------------------------------------------------------------------------------

bool AimChannel::is_idle() const {
    return aim_requests_ == 0 && read_.empty() && write_.empty() && active_.empty() && !has_waiting_ && refreshes_wanted_ == 0 &&
           barrier_issued_ < 0;
}

AimChannel::Snapshot AimChannel::snapshot(std::int64_t cycle) const {
    return {banks_, cycle, now_, last_read_done_, writes_done_, refresh_at_, register_mode_, write_mode_, commands_, open_cycles_};
}

bool AimChannel::repeats(const Snapshot& before, std::int64_t cycle) const {
    const std::int64_t shift = cycle - before.cycle;
    const std::int64_t forgotten = cycle - banks_.horizon();
    const auto alike = [&](std::int64_t time, std::int64_t earlier) {
        return time == earlier + shift || (time <= forgotten && earlier <= forgotten - shift);
    };
    return is_idle() && now_ == before.now + shift && refresh_at_ == before.refresh_at && register_mode_ == before.register_mode &&
           write_mode_ == before.write_mode && alike(last_read_done_, before.last_read_done) && alike(writes_done_, before.writes_done) &&
           banks_.repeats(before.banks, cycle, shift);
}

std::int64_t AimChannel::room(const Snapshot& before, std::int64_t cycle) const {
    return refresh_at_ == never ? never : std::max<std::int64_t>(0, refresh_at_ - cycle) / (cycle - before.cycle);
}

void AimChannel::repeat(const Snapshot& before, std::int64_t cycle, std::int64_t times, std::int32_t row) {
    const std::int64_t shift = (cycle - before.cycle) * times;
    banks_.repeat(cycle, shift, row);
    for (std::int64_t* const time : {&last_read_done_, &writes_done_}) {
        *time += *time > cycle - banks_.horizon() ? shift : 0;
    }
    now_ += shift;
    for (std::size_t i = 0; i < n_dram_commands; ++i) {
        commands_[i] += (commands_[i] - before.commands[i]) * times;
    }
    open_cycles_ += (open_cycles_ - before.open_cycles) * times;
}

// --- from event to event -------------------------------------------------------------------------------------------------------------

void AimChannel::run(std::int64_t limit, Until until) {
    while (now_ < limit) {
        if (until == Until::settled && take_waiting()) {
            return;
        }
        if (until == Until::called_back && (called_back_ >= 0 || barrier_issued_ >= 0)) {
            return;
        }
        while (now_ >= refresh_at_) {
            ++refreshes_wanted_;
            refresh_at_ += t_.nREFI;
        }
        if (refreshes_wanted_ == 0 && read_.empty() && write_.empty() && active_.empty()) {
            serve_stream(std::min(limit, refresh_at_), until);
        } else {
            look_around(limit);
        }
    }
}

// The AiM queue alone has something to do, and that up to cycle `bound`.
void AimChannel::serve_stream(std::int64_t bound, Until until) {
    if (aim_requests_ == 0) {
        if (bound == never) {
            no_end(waiting_.line);
        }
        write_mode_ = true;  // what an idle channel decides
        now_ = bound;
        return;
    }
    const Run& head = aim_[aim_head_];
    if (head.barrier) {
        issue_barrier();
        return;
    }
    const DramCommand step = banks_.next(head.command, head.bank, head.row);
    const std::int64_t first = std::max(now_, banks_.ready(step, head.bank));
    if (first >= bound) {
        now_ = bound;
        return;
    }
    now_ = first;
    if (issue_switch(step, head.bank, head.line)) {
        return;
    }
    if (step != head.command) {
        record(step, head.bank, head.row, first, 1, 1, head.line);
        fruitless(head.line);
        ++now_;
        return;
    }
    std::int64_t count = head.count;
    const std::int64_t pitch = banks_.pitch(step);
    if (step_bursts_ || step == DramCommand::wra16) {  // WRA16 closes the row
        count = 1;
    } else {
        if (bound != never) {
            count = std::min(count, (bound - 1 - first) / pitch + 1);
        }
        if (until == Until::settled && !has_waiting_) {
            count = std::min(count, aim_requests_ - rules_.queue_requests);
        }
    }
    const std::int64_t last = first + (count - 1) * pitch;
    record(step, head.bank, head.row, first, count, pitch, head.line);
    take_head(count);
    under_way(step, last);
    served();
    now_ = last + 1;
}

// One cycle, now_, in which refresh or ordinary requests have a say; then on to the next in which something may change.
void AimChannel::look_around(std::int64_t limit) {
    std::int64_t wake = never;
    if (!active_.empty()) {
        const Choice choice = best(active_);
        wake = choice.another;
        if (choice.ready) {
            if (choice.step != DramCommand::pre) {
                return serve(active_, choice);
            }
            // It wants to close the bank on which it waits itself, which is never done; nothing else is looked at meanwhile.
            return sleep(limit, wake, false);
        }
    }
    if (refreshes_wanted_ > 0) {
        const DramCommand step = banks_.any_open() ? DramCommand::prea : DramCommand::refab;
        const std::int64_t ready = banks_.ready(step, -1);
        if (ready <= now_) {
            return issue_refresh(step);
        }
        return sleep(limit, std::min(wake, ready), true);
    }
    if (aim_requests_ > 0) {
        const Run& head = aim_[aim_head_];
        if (head.barrier) {
            return issue_barrier();
        }
        const DramCommand step = banks_.next(head.command, head.bank, head.row);
        const std::int64_t ready = banks_.ready(step, head.bank);
        if (ready > now_) {
            return sleep(limit, std::min(wake, ready), true);
        }
        if (step == DramCommand::pre && waits_on(head.bank)) {
            return sleep(limit, wake, true);
        }
        if (!issue_switch(step, head.bank, head.line)) {
            record(step, head.bank, head.row, now_, 1, 1, head.line);
            if (step == head.command) {
                take_head(1);
                under_way(step, now_);
                served();
            } else {
                fruitless(head.line);
            }
            ++now_;
        }
        return;
    }
    choose_mode();
    Queue& queue = write_mode_ ? write_ : read_;
    if (queue.empty()) {
        return sleep(limit, wake, true);
    }
    const Choice choice = best(queue);
    if (choice.ready && !(choice.step == DramCommand::pre && waits_on(queue[choice.index].bank))) {
        return serve(queue, choice);
    }
    sleep(limit, std::min(wake, choice.another), true);
}

// Nothing can issue before cycle `wake`.
void AimChannel::sleep(std::int64_t limit, std::int64_t wake, bool refresh_counts) {
    if (refresh_counts) {
        wake = std::min(wake, refresh_at_);
    }
    now_ = std::min(limit, wake);
    if (now_ == never) {
        no_end(!active_.empty() ? active_.front().line : waiting_.line);
    }
}

// --- requests ------------------------------------------------------------------------------------------------------------------------

// The earliest of those that are ready, else the earliest. Not for an empty queue.
AimChannel::Choice AimChannel::best(const Queue& queue) const {
    Choice choice{0, DramCommand::act, false, never};
    for (std::size_t i = 0; i < queue.size(); ++i) {
        const Ordinary& request = queue[i];
        const DramCommand step = banks_.next(request.command, request.bank, request.row);
        const std::int64_t at = banks_.ready(step, request.bank);
        const bool ready = at <= now_;
        if (!ready) {
            choice.another = std::min(choice.another, at);
        } else if (!choice.ready || request.arrival < queue[choice.index].arrival) {
            choice = {i, step, true, choice.another};
        }
    }
    return choice;
}

bool AimChannel::waits_on(std::int32_t bank) const {
    return std::any_of(active_.begin(), active_.end(), [bank](const Ordinary& request) { return request.bank == bank; });
}

void AimChannel::choose_mode() {
    const auto writes = static_cast<double>(write_.size());
    if (!write_mode_) {
        write_mode_ = read_.empty() || writes > rules_.writes_to_start;
    } else if (!read_.empty() && writes < rules_.writes_to_stop) {
        write_mode_ = false;
    }
}

void AimChannel::serve(Queue& queue, const Choice& choice) {
    const Ordinary request = queue[choice.index];
    if (issue_switch(choice.step, request.bank, request.line)) {
        return;
    }
    record(choice.step, request.bank, request.row, now_, 1, 1, request.line);
    const auto place = queue.begin() + static_cast<std::ptrdiff_t>(choice.index);
    if (choice.step == request.command) {
        queue.erase(place);
        under_way(request.command, now_);
        served();
    } else {
        fruitless(request.line);
        if (choice.step == DramCommand::act) {
            const bool room = std::ssize(active_) < rules_.queue_requests;  // else the request is lost
            queue.erase(place);
            if (room) {
                active_.push_back(request);
            }
        }
    }
    ++now_;
}

// A refresh counts as a request of normal mode.
void AimChannel::issue_refresh(DramCommand step) {
    const DramCommand wanted = step;
    if (register_mode_) {
        step = DramCommand::tmod;
        register_mode_ = false;
    }
    if (log_ != nullptr) {
        log_->refresh(step, now_, banks_.binding(wanted, -1));
    }
    record_issue(step, -1, -1, now_, 1, 1);
    refreshes_wanted_ -= step == DramCommand::refab ? 1 : 0;
    ++now_;
}

// Issues TMOD in cycle now_ in place of `step` if that needs the other mode.
bool AimChannel::issue_switch(DramCommand step, std::int32_t bank, std::uint32_t line) {
    if (register_mode_ == needs_register_mode(step)) [[likely]] {
        return false;
    }
    register_mode_ = !register_mode_;
    if (log_ != nullptr) {
        explain(DramCommand::tmod, -1, -1, now_, 1, 1, line, banks_.binding(step, bank));
    }
    record_issue(DramCommand::tmod, -1, -1, now_, 1, 1);
    fruitless(line);
    ++now_;
    return true;
}

void AimChannel::served() { fruitless_ = 0; }

void AimChannel::fruitless(std::uint32_t line) {
    if (++fruitless_ > fruitless_limit) [[unlikely]] {
        no_end(line);
    }
}

void AimChannel::take_head(std::int64_t count) {
    Run& head = aim_[aim_head_];
    head.count -= count;
    aim_requests_ -= count;
    if (head.count == 0) {
        ++aim_head_;
        if (aim_head_ == aim_.size() || aim_head_ >= 64) {
            aim_.erase(aim_.begin(), aim_.begin() + static_cast<std::ptrdiff_t>(aim_head_));
            aim_head_ = 0;
        }
    }
}

// SYNC and EOC are no DRAM commands: nothing of the banks holds them.
void AimChannel::issue_barrier() {
    barrier_issued_ = now_;
    if (log_ != nullptr) {
        log_->barrier(now_, aim_[aim_head_].line);
    }
    take_head(1);
    served();
    ++now_;
}

void AimChannel::under_way(DramCommand command, std::int64_t cycle) {
    switch (command) {
        case DramCommand::rd:
            push_read(cycle + t_.nRD_latency, Rule::nRD_latency);
            break;
        case DramCommand::rdmac16:
        case DramCommand::rdaf16:
            push_read(cycle + t_.nRDMAC_latency, Rule::nRDMAC_latency);
            break;
        case DramCommand::wr:
            push_write(cycle + t_.nWR_latency, Rule::nWR_latency);
            break;
        case DramCommand::wra16:
            push_write(cycle + t_.nWRA_latency, Rule::nWRA_latency);
            break;
        case DramCommand::wrgb:
            push_write(cycle + t_.nWRGB_latency, Rule::nWRGB_latency);
            break;
        case DramCommand::wrmac16:
            push_write(cycle + t_.nWRMAC_latency, Rule::nWRMAC_latency);
            break;
        default:
            push_write(cycle + 1, Rule::completion);
            break;
    }
    if (rules_.blocking_reads && reads_register(command)) {
        called_back_ = last_read_done_;
        if (log_ != nullptr) {
            log_->read_calls_back();
        }
    }
}

void AimChannel::push_write(std::int64_t done, Rule rule) {
    if (log_ != nullptr) {
        log_->write(done, rule);
    }
    writes_done_ = std::max(writes_done_, done);
}

// Reads complete in order, one a cycle.
void AimChannel::push_read(std::int64_t due, Rule rule) {
    if (barrier_issued_ >= 0) {
        reads_behind_barrier_.push_back(due);
        if (log_ != nullptr) {
            log_->put_off(rule);
        }
        return;
    }
    if (log_ != nullptr) {
        log_->read(due, rule, last_read_done_);
    }
    last_read_done_ = std::max(due, last_read_done_ + 1);
}

// The same of a read that is answered from a write in cycle now_.
void AimChannel::answer_read(std::uint32_t line) {
    if (barrier_issued_ >= 0) {
        reads_behind_barrier_.push_back(now_ + 1);
        if (log_ != nullptr) {
            log_->put_off_forwarded(line);
        }
        return;
    }
    if (log_ != nullptr) {
        log_->forwarded_read(now_ + 1, line, last_read_done_);
    }
    last_read_done_ = std::max(now_ + 1, last_read_done_ + 1);
}

void AimChannel::record(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t first, std::int64_t count, std::int64_t pitch,
                        std::uint32_t line) {
    if (log_ != nullptr) [[unlikely]] {
        explain(command, bank, row, first, count, pitch, line, banks_.binding(command, bank));
    }
    record_issue(command, bank, row, first, count, pitch);
}

// Before the command issues: `held` is what held it.
void AimChannel::explain(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t first, std::int64_t count, std::int64_t pitch,
                         std::uint32_t line, const Binding& held) {
    Event event{EventKind::command, command, first};
    event.count = count;
    event.bank = bank;
    event.row = row;
    event.instruction = line;
    event.pitch = count > 1 ? banks_.pitch_rule(command) : Rule::issue;
    log_->command(event, held, pitch);
}

void AimChannel::record_issue(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t first, std::int64_t count,
                              std::int64_t pitch) {
    commands_[static_cast<std::size_t>(command)] += count;
    const bool were_open = banks_.any_open();
    banks_.issue(command, bank, row, first + (count - 1) * pitch);
    if (const bool are_open = banks_.any_open(); are_open != were_open) {
        open_cycles_ += are_open ? -first : first;
    }
    if (command == DramCommand::refab) {
        refresh_cycles_ += first + t_.nRFC - std::max(first, refreshed_);
        refreshed_ = first + t_.nRFC;
    }
    if (record_limit_ > 0) {
        if (count > record_limit_ - std::ssize(schedule_)) {
            throw Error("trace-too-long", "the trace issues more than " + std::to_string(record_limit_) + " commands on channel " + std::to_string(number_),
                        trace_name_, "record a shorter trace, or raise the limit");
        }
        for (std::int64_t i = 0; i < count; ++i) {
            schedule_.push_back({first + i * pitch, number_, bank, row, -1, command});
        }
    }
}

void AimChannel::no_end(std::uint32_t line) const {
    throw Error("bad-trace", "the public simulator would never end this trace: channel " + std::to_string(number_) + " cannot serve this line",
                trace_name_ + ":" + std::to_string(line));
}

}  // namespace wordline
