#include <algorithm>

#include "wordline/channel_log.hpp"
#include "wordline/channel_timing.hpp"

namespace wordline {
namespace {

std::int64_t floor_divide(std::int64_t numerator, std::int64_t denominator) {
    const std::int64_t quotient = numerator / denominator;
    return numerator % denominator < 0 ? quotient - 1 : quotient;
}

}  // namespace

ChannelTiming::ChannelTiming(const Machine& machine, int channel, CauseCycles* instruction_causes, std::vector<TraceEntry>* trace,
                             bool step_bursts, CommandCounts* instruction_commands)
    : t_(machine.timing),
      rules_(machine.rules),
      refresh_rules_(machine.refresh),
      landing_cycles_(machine.scratch.landing_cycles),
      banks_(machine.organisation.banks),
      banks_per_group_(machine.organisation.banks / machine.organisation.bank_groups),
      column_pitch_(std::max({machine.timing.nCCDS, machine.timing.nCCDL, 1})),
      register_pitch_(std::max(machine.timing.nCCDS, 1)),
      channel_(channel),
      step_bursts_(step_bursts),
      horizon_(horizon(machine.timing)),
      instruction_causes_(instruction_causes),
      instruction_commands_(instruction_commands),
      trace_(trace) {
    due_ = machine.refresh.enabled ? (std::int64_t{machine.refresh.postpone} + 1) * machine.timing.nREFI : beyond;
    row_.values.fill(-1);
    refreshed_row_.values.fill(-1);
    last_.any = last_.not_mac16 = last_.tmod = last_.refab = never;
    last_.act_any = last_.act_single = last_.act16 = last_.pre_any = last_.prea = never;
    last_.column_read_any = last_.column_read_all = last_.mac16 = last_.read_any = last_.column_write_any = last_.write_any = never;
    last_.af16 = last_.ewmul16 = last_.wra16 = never;
    last_.rd = last_.wr = last_.rdcp = last_.wrgb = last_.wrmac16 = last_.rdmac16 = never;
    for (auto* history : {&last_.act, &last_.act_group, &last_.pre, &last_.column_read, &last_.column_read_group, &last_.column_write,
                          &last_.column_write_group, &last_.wr_group}) {
        history->values.fill(never);
    }
    last_.activates.fill(never);
}

void ChannelTiming::slot(std::uint32_t instruction) {
    instruction_ = instruction;
    no_operation();
}

void ChannelTiming::no_operation() {
    if (log_ != nullptr) [[unlikely]] {
        log_->slot(now_, instruction_);
    }
    charge(Cause::issue, 1);
    ++now_;
}

void ChannelTiming::hold(std::int64_t until, Cause cause, std::uint32_t instruction) {
    if (until > now_) {
        instruction_ = instruction;
        charge(cause, until - now_);
        now_ = until;
    }
}

std::int64_t ChannelTiming::signal(std::uint32_t instruction) {
    const std::int64_t effect = std::max(now_, landed_);
    slot(instruction);
    return effect;
}

bool burst_command(Opcode opcode, DramCommand& command) {
    switch (opcode) {
        case Opcode::Mac16:
            command = DramCommand::mac16;
            return true;
        case Opcode::Mac:
            command = DramCommand::mac;
            return true;
        case Opcode::Rd:
            command = DramCommand::rd;
            return true;
        case Opcode::Wr:
        case Opcode::Wre:
            command = DramCommand::wr;
            return true;
        case Opcode::Rdcp:
            command = DramCommand::rdcp;
            return true;
        case Opcode::Wrcp:
            command = DramCommand::wrcp;
            return true;
        case Opcode::Wrgb:
            command = DramCommand::wrgb;
            return true;
        case Opcode::Wrmac16:
            command = DramCommand::wrmac16;
            return true;
        case Opcode::Rdmac16:
            command = DramCommand::rdmac16;
            return true;
        default:
            return false;
    }
}

void ChannelTiming::command(const ChannelCommand& c) {
    settle();
    instruction_ = c.instruction;
    if (DramCommand column{}; burst_command(c.opcode, column)) {
        return burst(column, c);
    }
    switch (c.opcode) {
        case Opcode::Act:
            return open_rows(DramCommand::act, c.bank, c.row);
        case Opcode::Act16:
            return open_rows(DramCommand::act16, -1, c.row);
        case Opcode::Pre:
            return close_rows(DramCommand::pre, c.bank);
        case Opcode::Prea:
            return close_rows(DramCommand::prea, -1);
        case Opcode::Ref:
            return explicit_refresh(c.field != 0);
        case Opcode::Tmod:
            return explicit_mode(c.field != 0);
        default:  // a channel stream has no other commands
            return no_operation();
    }
}

Cause ChannelTiming::own_cause(DramCommand command) {
    switch (command) {
        case DramCommand::mac16:
        case DramCommand::mac:
        case DramCommand::ewmul16:
            return Cause::mac;
        case DramCommand::wrgb:
            return Cause::fill;
        case DramCommand::wrmac16:
        case DramCommand::rdmac16:
        case DramCommand::rdaf16:
            return Cause::readout;
        case DramCommand::refab:
            return Cause::refresh;
        case DramCommand::act:
        case DramCommand::act16:
        case DramCommand::pre:
        case DramCommand::prea:
            return Cause::row_turn;
        default:
            return Cause::column_access;
    }
}

// --- instructions ------------------------------------------------------------------------------------------------------------------

// The row command that has to come before an access to `row`; false: the row is open.
bool ChannelTiming::row_prerequisite(bool all_banks, std::int32_t bank, std::int32_t row, DramCommand& step) const {
    if (!all_banks) {
        step = row_[bank] >= 0 ? DramCommand::pre : DramCommand::act;
        return row_[bank] != row;
    }
    if (common_row_ == row) {
        return false;
    }
    const auto end = row_.values.begin() + banks_;
    const bool other = std::any_of(row_.values.begin(), end, [row](std::int32_t open) { return open >= 0 && open != row; });
    step = other ? DramCommand::prea : DramCommand::act16;
    return true;
}

// The command that has to come before `command`, a column or register command; false: it may issue next.
bool ChannelTiming::prerequisite(DramCommand command, std::int32_t bank, std::int32_t row, DramCommand& step) const {
    if (needs_register_mode(command)) {
        step = DramCommand::tmod;
        return !register_mode_;
    }
    const bool turn = row_prerequisite(covers_all_banks(command), bank, row, step);
    if (register_mode_ && !(turn && rules_.row_commands_in_register_mode)) {
        step = DramCommand::tmod;
        return true;
    }
    return turn;
}

// What a prerequisite of `command` is charged to.
Cause ChannelTiming::step_cause(DramCommand step, DramCommand command, std::int32_t bank, std::int32_t row) const {
    if (step == DramCommand::tmod) {
        return register_mode_ ? visit_cause_ : own_cause(command);
    }
    const bool opens = step == DramCommand::act || step == DramCommand::act16;
    const std::int32_t representative = step == DramCommand::act ? bank : 0;
    return opens && refreshed_row_[representative] == row ? Cause::refresh : Cause::row_turn;
}

// Whether a refresh is forced before a command may issue in this cycle.
bool ChannelTiming::refresh_due(std::int64_t cycle) {
    if (due_ <= cycle) [[unlikely]] {
        lowest_shift_ = highest_shift_ = 0;
        return true;
    }
    keep_before_refresh(cycle);
    return false;
}

// Issues one command at its earliest cycle; false if a forced refresh came first, after which everything has to be looked at again.
bool ChannelTiming::try_issue(DramCommand command, std::int32_t bank, std::int32_t row, Cause own) {
    const Ready r = ready(command, bank, own);
    const std::int64_t at = std::max(now_, r.at);
    if (refresh_due(at)) [[unlikely]] {
        refresh();
        return false;
    }
    if (log_ != nullptr) [[unlikely]] {
        explain(command, bank, row, -1, at, 1, 1, false);
    }
    charge(r.cause, at - now_);
    charge(own, 1);
    now_ = at + 1;
    if (command == DramCommand::act || command == DramCommand::act16) {
        activation_cause_ = own;
    }
    record(command, bank, row, -1, at, 1, 1);
    return true;
}

void ChannelTiming::burst(DramCommand command, const ChannelCommand& c) {
    const bool registers = needs_register_mode(command);
    const std::int32_t bank = registers || covers_all_banks(command) ? -1 : c.bank;
    const std::int32_t row = registers ? -1 : c.row;
    const std::int64_t pitch = registers ? register_pitch_ : command == DramCommand::af16 ? 1 : column_pitch_;
    const Cause own = own_cause(command);
    std::int32_t column = command == DramCommand::wrgb ? c.buffer : registers ? c.accumulator : c.column;
    std::int64_t remaining = c.count;
    for (;;) {
        if (DramCommand step{}; prerequisite(command, bank, row, step)) [[unlikely]] {
            try_issue(step, bank, row, step_cause(step, command, bank, row));
            continue;
        }
        const Ready r = ready(command, bank, own);
        const std::int64_t first = std::max(now_, r.at);
        if (refresh_due(first)) [[unlikely]] {
            refresh();
            continue;
        }
        const std::int64_t until_due = (due_ - 1 - first) / pitch + 1;  // columns that issue before the refresh is due
        const bool alone = step_bursts_ || command == DramCommand::wra16;  // WRA16 closes its row
        const std::int64_t count = alone ? 1 : std::min(remaining, until_due);
        const std::int64_t last = first + (count - 1) * pitch;
        keep_before_refresh(last);
        if (log_ != nullptr) [[unlikely]] {
            explain(command, bank, row, column, first, count, pitch, false);
        }
        if (registers) {
            enter_visit(own);
        }
        charge(r.cause, first - now_);
        charge(own, last + 1 - first);
        now_ = last + 1;
        record(command, bank, row, column, first, count, pitch);
        remaining -= count;
        column += static_cast<std::int32_t>(count);
        if (remaining == 0) {
            break;
        }
    }
    if (command == DramCommand::rd || reads_registers(command)) {
        const std::int32_t latency = command == DramCommand::rd ? t_.nRD_latency : t_.nRDMAC_latency;
        const std::int64_t landing = last_.any + latency + landing_cycles_;
        if (landing > landed_) {
            landed_ = landing;
            landing_cause_ = own;
            landing_instruction_ = instruction_;
            if (log_ != nullptr) [[unlikely]] {
                log_->land(latency, command == DramCommand::rd ? Rule::nRD_latency : Rule::nRDMAC_latency, landing_cycles_);
            }
        }
    }
}

void ChannelTiming::open_rows(DramCommand command, std::int32_t bank, std::int32_t row) {
    for (;;) {
        if (refresh_due(now_)) [[unlikely]] {
            refresh();
            continue;
        }
        DramCommand step{};
        if (!row_prerequisite(covers_all_banks(command), bank, row, step)) {
            return no_operation();
        }
        if (register_mode_ && !rules_.row_commands_in_register_mode) {
            step = DramCommand::tmod;
        }
        if (try_issue(step, bank, row, step_cause(step, command, bank, row)) && step == command) {
            return;
        }
    }
}

void ChannelTiming::close_rows(DramCommand command, std::int32_t bank) {
    for (;;) {
        if (refresh_due(now_)) [[unlikely]] {
            refresh();
            continue;
        }
        if (command == DramCommand::pre ? row_[bank] < 0 : open_banks_ == 0) {
            return no_operation();
        }
        const bool switch_first = register_mode_ && !rules_.row_commands_in_register_mode;
        const DramCommand step = switch_first ? DramCommand::tmod : command;
        if (try_issue(step, bank, -1, step_cause(step, command, bank, -1)) && step == command) {
            return;
        }
    }
}

void ChannelTiming::explicit_refresh(bool late) {
    for (;;) {
        if (refresh_due(now_)) [[unlikely]] {
            refresh();
            continue;
        }
        const std::int64_t earliest = 1 - std::int64_t{refresh_rules_.pull_in};
        const std::int64_t least = late ? std::max(earliest, std::int64_t{refresh_rules_.postpone}) : earliest;
        const std::int64_t wanted = (refreshes_ + least) * t_.nREFI;  // from this cycle on the debt is at least that
        if (!refresh_rules_.enabled || now_ < wanted) {
            highest_shift_ = refresh_rules_.enabled ? std::min(highest_shift_, wanted - 1 - now_) : highest_shift_;
            return no_operation();
        }
        lowest_shift_ = std::max(lowest_shift_, wanted - now_);
        DramCommand step = open_banks_ > 0 ? DramCommand::prea : DramCommand::refab;
        if (register_mode_ && !rules_.row_commands_in_register_mode) {
            step = DramCommand::tmod;
        }
        const Cause own = step == DramCommand::refab ? Cause::refresh : step_cause(step, DramCommand::refab, -1, -1);
        if (try_issue(step, -1, -1, own) && step == DramCommand::refab) {
            return;
        }
    }
}

void ChannelTiming::explicit_mode(bool register_mode) {
    for (;;) {
        if (refresh_due(now_)) [[unlikely]] {
            refresh();
            continue;
        }
        if (register_mode_ == register_mode) {
            return no_operation();
        }
        const Cause own = register_mode ? Cause::fill : visit_cause_;
        const std::int64_t before = causes_[static_cast<std::size_t>(Cause::fill)];
        if (try_issue(DramCommand::tmod, -1, -1, own)) {
            if (register_mode) {  // what the visit serves is known at its first command
                entry_cycles_ = causes_[static_cast<std::size_t>(Cause::fill)] - before;
                entry_instruction_ = instruction_;
            }
            return;
        }
    }
}

void ChannelTiming::enter_visit(Cause cause) {
    visit_cause_ = cause;
    if (entry_cycles_ > 0 && cause != Cause::fill) {
        const std::uint32_t instruction = instruction_;
        instruction_ = entry_instruction_;
        charge(Cause::fill, -entry_cycles_);
        charge(cause, entry_cycles_);
        instruction_ = instruction;
    }
    entry_cycles_ = 0;
}

// --- refresh -----------------------------------------------------------------------------------------------------------------------

// The refresh that is due at due_. It may lie wholly before now_, while the stream waits or computes: then it costs nothing here.
void ChannelTiming::refresh() {
    if (register_mode_ && !rules_.row_commands_in_register_mode) {
        refresh_step(DramCommand::tmod);
    }
    if (open_banks_ > 0) {
        for (std::int32_t bank = 0; bank < banks_; ++bank) {
            if (row_[bank] >= 0) {
                refreshed_row_[bank] = row_[bank];
            }
        }
        refresh_step(DramCommand::prea);
    }
    refresh_step(DramCommand::refab);
}

void ChannelTiming::refresh_step(DramCommand command) {
    const std::int64_t at = std::max(due_, ready(command, -1, Cause::refresh).at);
    if (log_ != nullptr) [[unlikely]] {
        explain(command, -1, -1, -1, at, 1, 1, true);
    }
    if (at >= now_) {
        charge(Cause::refresh, at + 1 - now_);
        now_ = at + 1;
    }
    record(command, -1, -1, -1, at, 1, 1);
}

ChannelSummary ChannelTiming::finish() {
    settle();
    const std::int64_t last = now_ - 1;
    while (due_ <= last) {
        refresh();
    }
    const std::int64_t refreshed = last_.refab + t_.nRFC;
    const std::int64_t end = std::max({now_, landed_, refreshed});
    if (end > now_) {
        instruction_ = end == landed_ ? landing_instruction_ : instruction_;
        charge(end == landed_ ? landing_cause_ : Cause::refresh, end - now_);
    }
    if (log_ != nullptr) {
        log_->end(end, refreshed, last_.refab);
    }
    ChannelSummary summary;
    summary.end = end;
    if (refresh_rules_.enabled) {
        const std::int64_t debt = end - refreshes_ * t_.nREFI;  // in 1 / nREFI
        summary.refresh_charge = floor_divide(2 * debt * t_.nRFC + t_.nREFI, std::int64_t{2} * t_.nREFI);
    }
    summary.refreshes = refreshes_;
    summary.causes = causes_;
    summary.causes[static_cast<std::size_t>(Cause::refresh)] += summary.refresh_charge;
    summary.commands = commands_;
    summary.rows_open = open_banks_ > 0;
    summary.open_cycles = open_cycles_ + (summary.rows_open ? end : 0);
    return summary;
}

// What issues next, before it changes anything.
void ChannelTiming::explain(DramCommand command, std::int32_t bank, std::int32_t row, std::int32_t column, std::int64_t first,
                            std::int64_t count, std::int64_t pitch, bool refresh) const {
    Event event{EventKind::command, command, first};
    event.count = count;
    event.bank = covers_all_banks(command) ? -1 : bank;
    event.row = row;
    event.column = column;
    event.instruction = instruction_;
    event.refresh = refresh;
    if (count > 1 && command != DramCommand::af16) {
        const bool columns = !needs_register_mode(command);
        event.pitch = pitch == t_.nCCDS ? Rule::nCCDS : columns && pitch == t_.nCCDL ? Rule::nCCDL : Rule::issue;
    }
    log_->command(event, pitch, binding(command, bank), now_);
}

// --- state -------------------------------------------------------------------------------------------------------------------------

void ChannelTiming::record(DramCommand command, std::int32_t bank, std::int32_t row, std::int32_t column, std::int64_t first,
                           std::int64_t count, std::int64_t pitch) {
    commands_[static_cast<std::size_t>(command)] += count;
    if (instruction_commands_ != nullptr) {
        instruction_commands_[instruction_][static_cast<std::size_t>(command)] += count;
    }
    if (trace_ != nullptr) {
        const bool names_row = command != DramCommand::tmod && command != DramCommand::pre && command != DramCommand::prea;
        const bool names_bank = command == DramCommand::act || command == DramCommand::pre || column >= 0;
        for (std::int64_t i = 0; i < count; ++i) {
            trace_->push_back({first + i * pitch, channel_, names_bank ? bank : -1, names_row ? row : -1,
                               column < 0 ? -1 : column + static_cast<std::int32_t>(i), command});
        }
    }
    update(command, bank, row, first + (count - 1) * pitch);
}

void ChannelTiming::update(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t last) {
    last_.any = last;
    if (command == DramCommand::mac16) {
        last_.mac16 = last_.column_read_all = last_.column_read_any = last_.read_any = last;
        return;
    }
    last_.not_mac16 = last;
    const bool were_open = open_banks_ > 0;
    switch (command) {
        case DramCommand::act:
            last_.act[bank] = last_.act_group[group(bank)] = last_.act_any = last_.act_single = last;
            std::rotate(last_.activates.begin(), last_.activates.begin() + 1, last_.activates.end());
            last_.activates.back() = last;
            row_[bank] = row;
            refreshed_row_[bank] = -1;
            ++open_banks_;
            common_row_ = open_banks_ == banks_ &&
                                  std::all_of(row_.values.begin(), row_.values.begin() + banks_, [row](std::int32_t open) { return open == row; })
                              ? row
                              : -1;
            break;
        case DramCommand::act16:  // sixteen activates: four windows of four
            last_.act16 = last_.act_any = last;
            last_.activates.fill(last + 3 * std::int64_t{t_.nFAW});
            row_.values.fill(row);
            refreshed_row_.values.fill(-1);
            open_banks_ = banks_;
            common_row_ = row;
            break;
        case DramCommand::pre:
            last_.pre[bank] = last_.pre_any = last;
            row_[bank] = -1;
            --open_banks_;
            common_row_ = -1;
            break;
        case DramCommand::prea:
            last_.prea = last_.pre_any = last;
            row_.values.fill(-1);
            open_banks_ = 0;
            common_row_ = -1;
            break;
        case DramCommand::refab:
            last_.refab = last;
            ++refreshes_;
            due_ += t_.nREFI;
            break;
        case DramCommand::tmod:
            last_.tmod = last;
            register_mode_ = !register_mode_;
            entry_cycles_ = 0;
            break;
        case DramCommand::rd:
        case DramCommand::mac:
        case DramCommand::rdcp:
            last_.column_read[bank] = last_.column_read_group[group(bank)] = last_.column_read_any = last_.read_any = last;
            (command == DramCommand::rd ? last_.rd : command == DramCommand::rdcp ? last_.rdcp : last_.read_any) = last;
            break;
        case DramCommand::wr:
            last_.wr = last_.wr_group[group(bank)] = last;
            [[fallthrough]];
        case DramCommand::wrcp:
            last_.column_write[bank] = last_.column_write_group[group(bank)] = last_.column_write_any = last_.write_any = last;
            break;
        case DramCommand::wrgb:
            last_.wrgb = last_.write_any = last;
            break;
        case DramCommand::wrmac16:
            last_.wrmac16 = last_.write_any = last;
            break;
        case DramCommand::rdmac16:
        case DramCommand::rdaf16:
            last_.rdmac16 = last_.read_any = last;
            break;
        case DramCommand::af16:
            last_.af16 = last;
            break;
        case DramCommand::ewmul16:
            last_.ewmul16 = last_.column_read_all = last_.column_read_any = last_.read_any = last;
            break;
        case DramCommand::wra16:
            last_.wra16 = last_.write_any = last;
            row_.values.fill(-1);
            open_banks_ = 0;
            common_row_ = -1;
            break;
        case DramCommand::mac16:
            break;
    }
    if (const bool are_open = open_banks_ > 0; are_open != were_open) {
        open_cycles_ += are_open ? -last : last;
    }
}

}  // namespace wordline
