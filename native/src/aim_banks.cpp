#include <algorithm>
#include <bit>

#include "wordline/aim_channel.hpp"

namespace wordline {
namespace {

constexpr std::int64_t long_ago = -(std::int64_t{1} << 40);  // before any interval reaches

std::int64_t longest_interval(const Machine& machine) {
    const Machine::Timing& t = machine.timing;
    return std::max({machine.aim_simulator.nRRDS, machine.aim_simulator.nRRDL, t.nCCDS, t.nCCDL, t.nEWMUL2PRE, t.nMODCH, t.nRAS, t.nRC,
                     t.nRCDEWMUL, t.nRCDRD, t.nRCDRDAF, t.nRCDRDCP, t.nRCDRDMAC, t.nRCDWR, t.nRCDWRCP, t.nRD2WR, t.nRD2WRGB, t.nRD2WRMAC,
                     t.nRDMAC2WRGB, t.nRDMAC2WRMAC, t.nRFC, t.nRP, t.nRTP, t.nWR2PRE, t.nWR2RDL, t.nWR2RDMAC, t.nWR2RDS, t.nWRA2ACT,
                     t.nWRA2RD, t.nWRGB2RDMAC, t.nWRMAC2RDMAC}) +
           1;
}

std::size_t index(std::int32_t bank) { return static_cast<std::size_t>(bank); }

}  // namespace

AimBanks::AimBanks(const Machine& machine)
    : t_(&machine.timing),
      nRRDS_(machine.aim_simulator.nRRDS),
      nRRDL_(machine.aim_simulator.nRRDL),
      banks_(machine.organisation.banks),
      banks_per_group_(machine.organisation.banks / machine.organisation.bank_groups),
      horizon_(longest_interval(machine)) {
    row_.fill(-1);
    last_.tmod = last_.refab = last_.act_any = last_.act_single = last_.act_all = last_.pre_any = last_.pre_all = long_ago;
    last_.row_read_any = last_.row_read_all = last_.column_read_any = last_.column_read_all = last_.read_any = long_ago;
    last_.column_write_any = last_.write_any = last_.not_buffer_write = long_ago;
    last_.rd = last_.wr = last_.wra16 = last_.wrgb = last_.wrmac16 = last_.read_register = last_.ewmul16 = long_ago;
    for (PerBank* times : {&last_.act, &last_.act_group, &last_.pre, &last_.row_read, &last_.column_read_group, &last_.column_write,
                           &last_.column_write_group, &last_.wr_group}) {
        times->fill(long_ago);
    }
}

template <class Raise>
[[gnu::always_inline]] inline void AimBanks::column_read_gap(std::int32_t bank, Raise& raise) const {
    raise(last_.read_any, t_->nCCDS, Rule::nCCDS);
    raise(std::max(last_.column_read_group[index(group(bank))], last_.column_read_all), t_->nCCDL, Rule::nCCDL);
}

template <class Raise>
[[gnu::always_inline]] inline void AimBanks::column_write_gap(std::int32_t bank, Raise& raise) const {
    raise(last_.write_any, t_->nCCDS, Rule::nCCDS);
    raise(std::max(last_.column_write_group[index(group(bank))], last_.wra16), t_->nCCDL, Rule::nCCDL);
    raise(last_.ewmul16, t_->nCCDS, Rule::nCCDS);
}

// Calls `raise` with the cycle of an earlier command, the interval from it and the rule, for every rule of `command` but the mode's.
template <class Raise>
[[gnu::always_inline]] inline void AimBanks::constrain(DramCommand command, std::int32_t bank, Raise&& raise) const {
    const auto activated = [&] { return std::max(last_.act[index(bank)], last_.act_all); };
    const auto precharged = [&] { return std::max(last_.pre[index(bank)], last_.pre_all); };
    const auto all_reads = [&] {
        raise(last_.read_any, t_->nCCDS, Rule::nCCDS);
        raise(last_.column_read_any, t_->nCCDL, Rule::nCCDL);
    };
    if (command == DramCommand::tmod) {
        return;
    }
    raise(last_.tmod, t_->nMODCH, Rule::nMODCH);
    switch (command) {
        case DramCommand::mac16:
            raise(last_.act_any, t_->nRCDRDMAC, Rule::nRCDRDMAC);
            all_reads();
            break;
        case DramCommand::wrgb:
            raise(last_.write_any, t_->nCCDS, Rule::nCCDS);
            raise(last_.rd, t_->nRD2WRGB, Rule::nRD2WRGB);
            raise(last_.read_register, t_->nRDMAC2WRGB, Rule::nRDMAC2WRGB);
            break;
        case DramCommand::wrmac16:
            raise(last_.write_any, t_->nCCDS, Rule::nCCDS);
            raise(last_.ewmul16, t_->nCCDS, Rule::nCCDS);
            raise(last_.rd, t_->nRD2WRMAC, Rule::nRD2WRMAC);
            raise(last_.read_register, t_->nRDMAC2WRMAC, Rule::nRDMAC2WRMAC);
            break;
        case DramCommand::rdmac16:
        case DramCommand::rdaf16:
            raise(last_.read_any, t_->nCCDS, Rule::nCCDS);
            raise(last_.wrmac16, t_->nWRMAC2RDMAC, Rule::nWRMAC2RDMAC);
            raise(last_.wrgb, t_->nWRGB2RDMAC, Rule::nWRGB2RDMAC);
            raise(last_.wr, t_->nWR2RDMAC, Rule::nWR2RDMAC);
            raise(last_.wra16, t_->nWRA2RD, Rule::nWRA2RD);
            break;
        case DramCommand::af16:
            raise(last_.act_any, t_->nRCDRDAF, Rule::nRCDRDAF);
            break;
        case DramCommand::ewmul16:
            raise(last_.act_any, t_->nRCDEWMUL, Rule::nRCDEWMUL);
            all_reads();
            raise(last_.not_buffer_write, t_->nCCDS, Rule::nCCDS);
            break;
        case DramCommand::mac:
            raise(activated(), t_->nRCDRDMAC, Rule::nRCDRDMAC);
            column_read_gap(bank, raise);
            break;
        case DramCommand::rdcp:
            raise(activated(), t_->nRCDRDCP, Rule::nRCDRDCP);
            column_read_gap(bank, raise);
            break;
        case DramCommand::rd:
            raise(activated(), t_->nRCDRD, Rule::nRCDRD);
            column_read_gap(bank, raise);
            raise(last_.wr, t_->nWR2RDS, Rule::nWR2RDS);
            raise(last_.wr_group[index(group(bank))], t_->nWR2RDL, Rule::nWR2RDL);
            raise(last_.wra16, t_->nWRA2RD, Rule::nWRA2RD);
            raise(last_.wrmac16, t_->nWRMAC2RDMAC, Rule::nWRMAC2RDMAC);
            raise(last_.wrgb, t_->nWRGB2RDMAC, Rule::nWRGB2RDMAC);
            break;
        case DramCommand::wr:
            raise(activated(), t_->nRCDWR, Rule::nRCDWR);
            column_write_gap(bank, raise);
            raise(last_.rd, t_->nRD2WR, Rule::nRD2WR);
            break;
        case DramCommand::wrcp:
            raise(activated(), t_->nRCDWRCP, Rule::nRCDWRCP);
            column_write_gap(bank, raise);
            break;
        case DramCommand::wra16:
            raise(last_.act_any, t_->nRCDWR, Rule::nRCDWR);
            raise(last_.write_any, t_->nCCDS, Rule::nCCDS);
            raise(last_.column_write_any, t_->nCCDL, Rule::nCCDL);
            raise(last_.wra16, t_->nCCDL, Rule::nCCDL);
            raise(last_.ewmul16, t_->nCCDS, Rule::nCCDS);
            raise(last_.rd, t_->nRD2WR, Rule::nRD2WR);
            break;
        case DramCommand::act:
            raise(activated(), t_->nRC, Rule::nRC);
            raise(last_.act_group[index(group(bank))], nRRDL_, Rule::aim_nRRDL);
            raise(last_.act_single, nRRDS_, Rule::aim_nRRDS);
            raise(precharged(), t_->nRP, Rule::nRP);
            raise(last_.wra16, t_->nWRA2ACT, Rule::nWRA2ACT);
            raise(last_.refab, t_->nRFC, Rule::nRFC);
            break;
        case DramCommand::act16:
            raise(last_.act_any, t_->nRC, Rule::nRC);
            raise(last_.pre_any, t_->nRP, Rule::nRP);
            raise(last_.wra16, t_->nWRA2ACT, Rule::nWRA2ACT);
            raise(last_.refab, t_->nRFC, Rule::nRFC);
            break;
        case DramCommand::pre:
            raise(activated(), t_->nRAS, Rule::nRAS);
            raise(precharged(), t_->nRP, Rule::nRP);
            raise(std::max(last_.row_read[index(bank)], last_.row_read_all), t_->nRTP, Rule::nRTP);
            raise(last_.column_write[index(bank)], t_->nWR2PRE, Rule::nWR2PRE);
            raise(last_.ewmul16, t_->nEWMUL2PRE, Rule::nEWMUL2PRE);
            break;
        case DramCommand::prea:
            raise(last_.act_any, t_->nRAS, Rule::nRAS);
            raise(last_.pre_any, t_->nRP, Rule::nRP);
            raise(last_.row_read_any, t_->nRTP, Rule::nRTP);
            raise(last_.column_write_any, t_->nWR2PRE, Rule::nWR2PRE);
            raise(last_.ewmul16, t_->nEWMUL2PRE, Rule::nEWMUL2PRE);
            break;
        case DramCommand::refab:
            raise(last_.pre_any, t_->nRP, Rule::nRP);
            raise(last_.act_any, t_->nRC, Rule::nRC);
            break;
        case DramCommand::tmod:
            break;
    }
}

std::int64_t AimBanks::ready(DramCommand command, std::int32_t bank) const {
    std::int64_t at = long_ago;
    constrain(command, bank, [&at](std::int64_t earlier, std::int32_t interval, Rule) { at = std::max(at, earlier + interval); });
    return at;
}

Binding AimBanks::binding(DramCommand command, std::int32_t bank) const {
    Binding found;
    constrain(command, bank, [&found](std::int64_t earlier, std::int32_t interval, Rule rule) { found.raise(earlier, interval, rule); });
    return found;
}

Rule AimBanks::pitch_rule(DramCommand command) const {
    const std::int32_t cycles = pitch(command);
    if (command == DramCommand::af16 || (cycles != t_->nCCDS && cycles != t_->nCCDL)) {
        return Rule::issue;
    }
    return cycles == t_->nCCDS ? Rule::nCCDS : Rule::nCCDL;
}

DramCommand AimBanks::next(DramCommand command, std::int32_t bank, std::int32_t row) const {
    if (covers_all_banks(command)) {
        if (common_row_ == row) {
            return command;
        }
        const bool other = std::any_of(row_.begin(), row_.begin() + banks_, [row](std::int32_t open) { return open >= 0 && open != row; });
        return other ? DramCommand::prea : DramCommand::act16;
    }
    if (bank < 0) {
        return command;  // a register command
    }
    const std::int32_t open = row_[index(bank)];
    return open == row ? command : open < 0 ? DramCommand::act : DramCommand::pre;
}

std::int32_t AimBanks::pitch(DramCommand command) const {
    switch (command) {
        case DramCommand::af16:
            return 1;
        case DramCommand::wrgb:
        case DramCommand::wrmac16:
        case DramCommand::rdmac16:
        case DramCommand::rdaf16:
            return std::max(1, t_->nCCDS);
        default:
            return std::max({1, t_->nCCDS, t_->nCCDL});
    }
}

void AimBanks::issue(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t cycle) {
    switch (command) {
        case DramCommand::mac16:
            last_.row_read_any = last_.row_read_all = last_.column_read_any = last_.column_read_all = last_.read_any = cycle;
            break;
        case DramCommand::ewmul16:
            last_.row_read_any = last_.row_read_all = last_.column_read_any = last_.column_read_all = last_.read_any = last_.ewmul16 = cycle;
            break;
        case DramCommand::af16:
            last_.row_read_any = last_.row_read_all = cycle;
            break;
        case DramCommand::rdmac16:
        case DramCommand::rdaf16:
            last_.read_any = last_.read_register = cycle;
            break;
        case DramCommand::rd:
            last_.rd = cycle;
            [[fallthrough]];
        case DramCommand::mac:
        case DramCommand::rdcp:
            last_.row_read[index(bank)] = last_.column_read_group[index(group(bank))] = cycle;
            last_.row_read_any = last_.column_read_any = last_.read_any = cycle;
            break;
        case DramCommand::wr:
            last_.wr = last_.wr_group[index(group(bank))] = cycle;
            [[fallthrough]];
        case DramCommand::wrcp:
            last_.column_write[index(bank)] = last_.column_write_group[index(group(bank))] = cycle;
            last_.column_write_any = last_.write_any = last_.not_buffer_write = cycle;
            break;
        case DramCommand::wra16:
            last_.wra16 = last_.write_any = last_.not_buffer_write = cycle;
            row_.fill(-1);
            open_banks_ = 0;
            common_row_ = -1;
            break;
        case DramCommand::wrmac16:
            last_.wrmac16 = last_.write_any = last_.not_buffer_write = cycle;
            break;
        case DramCommand::wrgb:
            last_.wrgb = last_.write_any = cycle;
            break;
        case DramCommand::act:
            last_.act[index(bank)] = last_.act_group[index(group(bank))] = last_.act_any = last_.act_single = cycle;
            row_[index(bank)] = row;
            ++open_banks_;
            common_row_ = std::all_of(row_.begin(), row_.begin() + banks_, [row](std::int32_t open) { return open == row; }) ? row : -1;
            break;
        case DramCommand::act16:
            last_.act_all = last_.act_any = cycle;
            row_.fill(row);
            open_banks_ = banks_;
            common_row_ = row;
            break;
        case DramCommand::pre:
            last_.pre[index(bank)] = last_.pre_any = cycle;
            row_[index(bank)] = -1;
            --open_banks_;
            common_row_ = -1;
            break;
        case DramCommand::prea:
            last_.pre_all = last_.pre_any = cycle;
            row_.fill(-1);
            open_banks_ = 0;
            common_row_ = -1;
            break;
        case DramCommand::refab:
            last_.refab = cycle;
            break;
        case DramCommand::tmod:
            last_.tmod = cycle;
            break;
    }
}

bool AimBanks::repeats(const AimBanks& before, std::int64_t now, std::int64_t shift) const {
    if ((common_row_ < 0) != (before.common_row_ < 0) || open_banks_ != before.open_banks_ || (open_banks_ > 0 && common_row_ < 0)) {
        return false;
    }
    const auto times = std::bit_cast<Times>(last_);
    const auto earlier = std::bit_cast<Times>(before.last_);
    const std::int64_t forgotten = now - horizon_;
    bool same = true;
    for (std::size_t i = 0; i < times.size(); ++i) {
        same &= (times[i] == earlier[i] + shift) | ((times[i] <= forgotten) & (earlier[i] <= forgotten - shift));
    }
    return same;
}

void AimBanks::repeat(std::int64_t now, std::int64_t shift, std::int32_t row) {
    auto times = std::bit_cast<Times>(last_);
    for (std::int64_t& time : times) {
        time += time > now - horizon_ ? shift : 0;
    }
    last_ = std::bit_cast<Last>(times);
    if (common_row_ >= 0 && row >= 0) {
        row_.fill(row);
        common_row_ = row;
    }
}

}  // namespace wordline
