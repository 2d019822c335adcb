// The intervals between commands (`docs/timing.md`, sections 2 to 5): what a command has to wait for.
#include <algorithm>
#include <string>

#include "wordline/channel_timing.hpp"
#include "wordline/critical_path.hpp"
#include "wordline/error.hpp"

namespace wordline {
namespace {

void require(bool implemented, const std::string& path, const std::string& what) {
    if (!implemented) {
        throw Error("bad-machine", "the timing model implements " + path + " = " + what + " only", path);
    }
}

}  // namespace

void check_timing_machine(const Machine& machine) {
    require(machine.rules.row_buffers == 1, "rules.row_buffers", "1");
    require(machine.rules.buffer_halves == 1, "rules.buffer_halves", "1");
    require(!machine.vector_unit.present || machine.vector_unit.latency_per == "pass", "vector_unit.latency_per", "pass");
    if (!machine.refresh.enabled) {
        return;
    }
    // A forced refresh has to end, and one command to issue, before the next one is due: else no program would ever end.
    const Machine::Timing& t = machine.timing;
    const std::int32_t activation = std::max({t.nRCDRD, t.nRCDRDMAC, t.nRCDRDCP, t.nRCDWR, t.nRCDWRCP, t.nRCDEWMUL, t.nRCDRDAF});
    const std::int64_t needed = std::int64_t{t.nMAC2TMOD} + t.nCMD2TMOD + 3 * t.nMODCH + t.nRAS + t.nRTP + t.nWR2PRE + 3 * t.nRP + t.nRFC +
                                t.nRC + t.nRRDS + t.nRRDL + (machine.rules.faw_enforced ? 4 * t.nFAW : 0) + activation +
                                std::max(t.nRD2WR, t.nRD2WRGB) + t.nRDCP2MAC + t.nWR2MAC;
    if (t.nREFI <= needed) {
        throw Error("bad-machine",
                    "refresh cannot keep up: timing.nREFI is " + std::to_string(t.nREFI) +
                        " cycles, and one forced refresh with the command after it can take " + std::to_string(needed),
                    "timing.nREFI", "raise timing.nREFI, lower timing.nRFC, or set refresh.enabled=false");
    }
}

// Cycles after which no rule looks back at a command: each interval of the rules is one of these or the sum of two.
std::int64_t ChannelTiming::horizon(const Machine::Timing& t) {
    return 2 * std::int64_t{std::max({t.nRFC, t.nRC, t.nRAS, t.nFAW, t.nCL, t.nCWL, t.nBL, t.nWR, t.nRP, t.nRTP,
                                     t.nMODCH, t.nRCDRD, t.nRCDRDMAC, t.nRCDEWMUL, t.nRCDRDAF, t.nRCDRDCP, t.nRCDWR,
                                     t.nRCDWRCP, t.nRRDS, t.nRRDL, t.nRD2WR, t.nRD2WRGB, t.nRD2WRMAC, t.nRDMAC2WR,
                                     t.nRDMAC2WRGB, t.nRDMAC2WRMAC, t.nWR2MAC, t.nWR2RDS, t.nWR2RDL, t.nWR2RDMAC,
                                     t.nWRA2RD, t.nWRGB2RDMAC, t.nWRMAC2RDMAC, t.nRDCP2MAC, t.nWR2PRE, t.nEWMUL2PRE,
                                     t.nWRA2ACT, t.nMAC2TMOD, t.nCMD2TMOD})};
}

template <class R>
[[gnu::always_inline]] inline void ChannelTiming::raise_activation(R& r, std::int32_t bank, std::int32_t interval, Rule rule) const {
    r.raise(std::max(last_.act[bank], last_.act16), interval, rule, activation_cause_);
}

template <class R>
[[gnu::always_inline]] inline void ChannelTiming::raise_read_gap(R& r, DramCommand command, std::int32_t bank, Cause own) const {
    r.raise(last_.read_any, t_.nCCDS, Rule::nCCDS, own);
    if (command == DramCommand::mac16 || command == DramCommand::ewmul16) {
        r.raise(last_.column_read_any, t_.nCCDL, Rule::nCCDL, own);
    } else if (!reads_registers(command)) {
        r.raise(std::max(last_.column_read_group[group(bank)], last_.column_read_all), t_.nCCDL, Rule::nCCDL, own);
    }
}

template <class R>
[[gnu::always_inline]] inline void ChannelTiming::raise_write_gap(R& r, std::int32_t bank, Cause own) const {
    r.raise(last_.write_any, t_.nCCDS, Rule::nCCDS, own);
    if (bank >= 0) {
        r.raise(std::max(last_.column_write_group[group(bank)], last_.wra16), t_.nCCDL, Rule::nCCDL, own);
    }
}

template <class R>
[[gnu::always_inline]] inline void ChannelTiming::raise_row_rules(R& r, DramCommand command, std::int32_t bank, Cause own) const {
    switch (command) {
        case DramCommand::act:
            r.raise(std::max(last_.act[bank], last_.act16), t_.nRC, Rule::nRC, own);
            r.raise(last_.act_group[group(bank)], t_.nRRDL, Rule::nRRDL, own);
            r.raise(last_.act_single, t_.nRRDS, Rule::nRRDS, own);
            r.raise(std::max(last_.pre[bank], last_.prea), t_.nRP, Rule::nRP, own);
            r.raise(last_.wra16, t_.nWRA2ACT, Rule::nWRA2ACT, own);
            if (rules_.faw_enforced) {
                r.raise(last_.activates.front(), t_.nFAW, Rule::nFAW, own);
            }
            break;
        case DramCommand::act16:
            r.raise(last_.act_any, t_.nRC, Rule::nRC, own);
            r.raise(last_.pre_any, t_.nRP, Rule::nRP, own);
            r.raise(last_.wra16, t_.nWRA2ACT, Rule::nWRA2ACT, own);
            if (rules_.faw_enforced) {
                r.raise(last_.activates.back(), t_.nFAW, Rule::nFAW, own);
            }
            break;
        case DramCommand::pre:
            r.raise(std::max(last_.act[bank], last_.act16), t_.nRAS, Rule::nRAS, own);
            r.raise(std::max(last_.pre[bank], last_.prea), t_.nRP, Rule::nRP, own);
            r.raise(std::max({last_.column_read[bank], last_.column_read_all, last_.af16}), t_.nRTP, Rule::nRTP, own);
            r.raise(last_.column_write[bank], t_.nWR2PRE, Rule::nWR2PRE, own);
            r.raise(last_.ewmul16, t_.nEWMUL2PRE, Rule::nEWMUL2PRE, own);
            break;
        case DramCommand::prea:
            r.raise(last_.act_any, t_.nRAS, Rule::nRAS, own);
            r.raise(last_.pre_any, t_.nRP, Rule::nRP, own);
            r.raise(std::max(last_.column_read_any, last_.af16), t_.nRTP, Rule::nRTP, own);
            r.raise(last_.column_write_any, t_.nWR2PRE, Rule::nWR2PRE, own);
            r.raise(last_.ewmul16, t_.nEWMUL2PRE, Rule::nEWMUL2PRE, own);
            break;
        default:  // REFab
            r.raise(last_.act_any, t_.nRC, Rule::nRC, own);
            r.raise(last_.pre_any, t_.nRP, Rule::nRP, own);
            r.raise(last_.wra16, t_.nWRA2ACT, Rule::nWRA2ACT, own);
            break;
    }
}

template <class R>
[[gnu::always_inline]] inline void ChannelTiming::raise_all(R& r, DramCommand command, std::int32_t bank, Cause own) const {
    const bool held_by_refresh = !rules_.commands_during_refresh || (command != DramCommand::tmod && !needs_register_mode(command));
    if (held_by_refresh) {
        r.raise(last_.refab, t_.nRFC, Rule::nRFC, Cause::refresh);
    }
    if (command == DramCommand::tmod) {
        r.raise(last_.tmod, t_.nMODCH, Rule::nMODCH, own);
        r.raise(last_.mac16, t_.nMAC2TMOD, Rule::nMAC2TMOD, own);
        r.raise(last_.not_mac16, t_.nCMD2TMOD, Rule::nCMD2TMOD, own);
        return;
    }
    r.raise(last_.tmod, t_.nMODCH, Rule::nMODCH, register_mode_ ? own : visit_cause_);
    switch (command) {
        case DramCommand::mac16:
            r.raise(last_.act_any, t_.nRCDRDMAC, Rule::nRCDRDMAC, activation_cause_);
            r.raise(last_.column_write_any, t_.nWR2MAC, Rule::nWR2MAC, Cause::column_access);
            r.raise(last_.rdcp, t_.nRDCP2MAC, Rule::nRDCP2MAC, Cause::column_access);
            raise_read_gap(r, command, bank, own);
            break;
        case DramCommand::mac:
            raise_activation(r, bank, t_.nRCDRDMAC, Rule::nRCDRDMAC);
            r.raise(last_.column_write_any, t_.nWR2MAC, Rule::nWR2MAC, Cause::column_access);
            r.raise(last_.rdcp, t_.nRDCP2MAC, Rule::nRDCP2MAC, Cause::column_access);
            raise_read_gap(r, command, bank, own);
            break;
        case DramCommand::rd:
            raise_activation(r, bank, t_.nRCDRD, Rule::nRCDRD);
            r.raise(last_.wr, t_.nWR2RDS, Rule::nWR2RDS, own);
            r.raise(last_.wra16, t_.nWRA2RD, Rule::nWRA2RD, own);
            r.raise(last_.wr_group[group(bank)], t_.nWR2RDL, Rule::nWR2RDL, own);
            r.raise(last_.wrmac16, t_.nWRMAC2RDMAC, Rule::nWRMAC2RDMAC, own);
            r.raise(last_.wrgb, t_.nWRGB2RDMAC, Rule::nWRGB2RDMAC, own);
            raise_read_gap(r, command, bank, own);
            break;
        case DramCommand::rdcp:
            raise_activation(r, bank, t_.nRCDRDCP, Rule::nRCDRDCP);
            r.raise(last_.column_write_any, t_.nWR2MAC, Rule::nWR2MAC, own);
            raise_read_gap(r, command, bank, own);
            break;
        case DramCommand::wr:
            raise_activation(r, bank, t_.nRCDWR, Rule::nRCDWR);
            r.raise(last_.rd, t_.nRD2WR, Rule::nRD2WR, own);
            r.raise(last_.rdmac16, t_.nRDMAC2WR, Rule::nRDMAC2WR, own);
            r.raise(last_.ewmul16, t_.nCCDS, Rule::nCCDS, own);
            raise_write_gap(r, bank, own);
            break;
        case DramCommand::wrcp:
            raise_activation(r, bank, t_.nRCDWRCP, Rule::nRCDWRCP);
            r.raise(last_.rdcp, t_.nRDCP2MAC, Rule::nRDCP2MAC, own);
            r.raise(last_.ewmul16, t_.nCCDS, Rule::nCCDS, own);
            raise_write_gap(r, bank, own);
            break;
        case DramCommand::wrgb:
            r.raise(last_.rd, t_.nRD2WRGB, Rule::nRD2WRGB, own);
            r.raise(last_.rdmac16, t_.nRDMAC2WRGB, Rule::nRDMAC2WRGB, own);
            raise_write_gap(r, -1, own);
            break;
        case DramCommand::wrmac16:
            r.raise(last_.rd, t_.nRD2WRMAC, Rule::nRD2WRMAC, own);
            r.raise(last_.rdmac16, t_.nRDMAC2WRMAC, Rule::nRDMAC2WRMAC, own);
            r.raise(last_.ewmul16, t_.nCCDS, Rule::nCCDS, own);
            raise_write_gap(r, -1, own);
            break;
        case DramCommand::rdmac16:
        case DramCommand::rdaf16:
            r.raise(last_.wrmac16, t_.nWRMAC2RDMAC, Rule::nWRMAC2RDMAC, own);
            r.raise(last_.wrgb, t_.nWRGB2RDMAC, Rule::nWRGB2RDMAC, own);
            r.raise(last_.wr, t_.nWR2RDMAC, Rule::nWR2RDMAC, own);
            r.raise(last_.wra16, t_.nWRA2RD, Rule::nWRA2RD, own);
            raise_read_gap(r, command, bank, own);
            break;
        case DramCommand::af16:
            r.raise(last_.act_any, t_.nRCDRDAF, Rule::nRCDRDAF, activation_cause_);
            break;
        case DramCommand::ewmul16:
            r.raise(last_.act_any, t_.nRCDEWMUL, Rule::nRCDEWMUL, activation_cause_);
            r.raise(std::max({last_.column_write_any, last_.wra16, last_.wrmac16}), t_.nCCDS, Rule::nCCDS, own);
            raise_read_gap(r, command, bank, own);
            break;
        case DramCommand::wra16:
            r.raise(last_.act_any, t_.nRCDWR, Rule::nRCDWR, activation_cause_);
            r.raise(last_.rd, t_.nRD2WR, Rule::nRD2WR, own);
            r.raise(last_.rdmac16, t_.nRDMAC2WR, Rule::nRDMAC2WR, own);
            r.raise(std::max(last_.column_write_any, last_.wra16), t_.nCCDL, Rule::nCCDL, own);
            r.raise(std::max(last_.write_any, last_.ewmul16), t_.nCCDS, Rule::nCCDS, own);
            break;
        default:
            raise_row_rules(r, command, bank, own);
            break;
    }
}

// `own` is the cause that the command itself is charged to. Where constraints end together the first one raised gives the cause.
ChannelTiming::Ready ChannelTiming::ready(DramCommand command, std::int32_t bank, Cause own) const {
    Ready r{last_.any + 1, own};
    raise_all(r, command, bank, own);
    return r;
}

struct ChannelTiming::Held {
    Binding binding{};
    void raise(std::int64_t earlier, std::int64_t interval, Rule why, Cause) { binding.raise(earlier, interval, why); }
};

Binding ChannelTiming::binding(DramCommand command, std::int32_t bank) const {
    Held held;
    raise_all(held, command, bank, Cause::issue);
    return held.binding;
}

}  // namespace wordline
