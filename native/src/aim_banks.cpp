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

std::int64_t AimBanks::activated(std::int32_t bank) const { return std::max(last_.act[index(bank)], last_.act_all); }

std::int64_t AimBanks::column_read_gap(std::int32_t bank) const {
    const std::int64_t in_group = std::max(last_.column_read_group[index(group(bank))], last_.column_read_all);
    return std::max(last_.read_any + t_->nCCDS, in_group + t_->nCCDL);
}

std::int64_t AimBanks::column_write_gap(std::int32_t bank) const {
    const std::int64_t in_group = std::max(last_.column_write_group[index(group(bank))], last_.wra16);
    return std::max({last_.write_any + t_->nCCDS, in_group + t_->nCCDL, last_.ewmul16 + t_->nCCDS});
}

std::int64_t AimBanks::ready(DramCommand command, std::int32_t bank) const {
    const std::int64_t mode = last_.tmod + t_->nMODCH;
    const std::int64_t all_reads = std::max(last_.read_any + t_->nCCDS, last_.column_read_any + t_->nCCDL);
    switch (command) {
        case DramCommand::mac16:
            return std::max({mode, last_.act_any + t_->nRCDRDMAC, all_reads});
        case DramCommand::wrgb:
            return std::max({mode, last_.write_any + t_->nCCDS, last_.rd + t_->nRD2WRGB, last_.read_register + t_->nRDMAC2WRGB});
        case DramCommand::wrmac16:
            return std::max({mode, last_.write_any + t_->nCCDS, last_.ewmul16 + t_->nCCDS, last_.rd + t_->nRD2WRMAC,
                             last_.read_register + t_->nRDMAC2WRMAC});
        case DramCommand::rdmac16:
        case DramCommand::rdaf16:
            return std::max({mode, last_.read_any + t_->nCCDS, last_.wrmac16 + t_->nWRMAC2RDMAC, last_.wrgb + t_->nWRGB2RDMAC,
                             last_.wr + t_->nWR2RDMAC, last_.wra16 + t_->nWRA2RD});
        case DramCommand::af16:
            return std::max(mode, last_.act_any + t_->nRCDRDAF);
        case DramCommand::ewmul16:
            return std::max({mode, last_.act_any + t_->nRCDEWMUL, all_reads, last_.not_buffer_write + t_->nCCDS});
        case DramCommand::mac:
            return std::max({mode, activated(bank) + t_->nRCDRDMAC, column_read_gap(bank)});
        case DramCommand::rdcp:
            return std::max({mode, activated(bank) + t_->nRCDRDCP, column_read_gap(bank)});
        case DramCommand::rd:
            return std::max({mode, activated(bank) + t_->nRCDRD, column_read_gap(bank), last_.wr + t_->nWR2RDS,
                             last_.wr_group[index(group(bank))] + t_->nWR2RDL, last_.wra16 + t_->nWRA2RD, last_.wrmac16 + t_->nWRMAC2RDMAC,
                             last_.wrgb + t_->nWRGB2RDMAC});
        case DramCommand::wr:
            return std::max({mode, activated(bank) + t_->nRCDWR, column_write_gap(bank), last_.rd + t_->nRD2WR});
        case DramCommand::wrcp:
            return std::max({mode, activated(bank) + t_->nRCDWRCP, column_write_gap(bank)});
        case DramCommand::wra16:
            return std::max({mode, last_.act_any + t_->nRCDWR, last_.write_any + t_->nCCDS, last_.column_write_any + t_->nCCDL,
                             last_.wra16 + t_->nCCDL, last_.ewmul16 + t_->nCCDS, last_.rd + t_->nRD2WR});
        case DramCommand::act:
            return std::max({mode, activated(bank) + t_->nRC, last_.act_group[index(group(bank))] + nRRDL_, last_.act_single + nRRDS_,
                             std::max(last_.pre[index(bank)], last_.pre_all) + t_->nRP, last_.wra16 + t_->nWRA2ACT, last_.refab + t_->nRFC});
        case DramCommand::act16:
            return std::max({mode, last_.act_any + t_->nRC, last_.pre_any + t_->nRP, last_.wra16 + t_->nWRA2ACT, last_.refab + t_->nRFC});
        case DramCommand::pre:
            return std::max({mode, activated(bank) + t_->nRAS, std::max(last_.pre[index(bank)], last_.pre_all) + t_->nRP,
                             std::max(last_.row_read[index(bank)], last_.row_read_all) + t_->nRTP, last_.column_write[index(bank)] + t_->nWR2PRE,
                             last_.ewmul16 + t_->nEWMUL2PRE});
        case DramCommand::prea:
            return std::max({mode, last_.act_any + t_->nRAS, last_.pre_any + t_->nRP, last_.row_read_any + t_->nRTP,
                             last_.column_write_any + t_->nWR2PRE, last_.ewmul16 + t_->nEWMUL2PRE});
        case DramCommand::refab:
            return std::max({mode, last_.pre_any + t_->nRP, last_.act_any + t_->nRC});
        case DramCommand::tmod:
            break;
    }
    return long_ago;
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
