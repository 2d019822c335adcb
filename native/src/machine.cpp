#include "wordline/machine.hpp"

#include <limits>

#include "wordline/error.hpp"

namespace wordline {
namespace {

class Reader {
public:
    explicit Reader(const FlatMachine& flat) : flat_(flat) {}

    void read(const std::string& path, std::int64_t& out) const {
        const FlatValue& value = at(path);
        if (const auto* number = std::get_if<std::int64_t>(&value)) {
            out = *number;
            return;
        }
        throw Error("bad-machine", "machine field " + path + " must be an integer", path);
    }

    void read(const std::string& path, std::int32_t& out) const {
        std::int64_t wide = 0;
        read(path, wide);
        if (wide < 0 || wide > std::numeric_limits<std::int32_t>::max()) {
            throw Error("bad-machine", "machine field " + path + " is out of range: " + std::to_string(wide), path);
        }
        out = static_cast<std::int32_t>(wide);
    }

    void read(const std::string& path, double& out) const {
        const FlatValue& value = at(path);
        if (const auto* real = std::get_if<double>(&value)) {
            out = *real;
        } else if (const auto* number = std::get_if<std::int64_t>(&value)) {
            out = static_cast<double>(*number);
        } else {
            throw Error("bad-machine", "machine field " + path + " must be a number", path);
        }
    }

    void read(const std::string& path, bool& out) const {
        const auto* flag = std::get_if<bool>(&at(path));
        if (flag == nullptr) {
            throw Error("bad-machine", "machine field " + path + " must be true or false", path);
        }
        out = *flag;
    }

    void read(const std::string& path, std::string& out) const {
        const auto* text = std::get_if<std::string>(&at(path));
        if (text == nullptr) {
            throw Error("bad-machine", "machine field " + path + " must be a string", path);
        }
        out = *text;
    }

    void read_table(const std::string& prefix, std::map<std::string, std::int32_t>& out) const {
        for (auto it = flat_.lower_bound(prefix); it != flat_.end() && it->first.starts_with(prefix); ++it) {
            read(it->first, out[it->first.substr(prefix.size())]);
        }
        if (!out.contains("other")) {
            throw Error("bad-machine", "the machine description lacks " + prefix + "other", prefix + "other");
        }
    }

private:
    const FlatValue& at(const std::string& path) const {
        const auto found = flat_.find(path);
        if (found == flat_.end()) {
            throw Error("bad-machine", "the machine description lacks " + path, path);
        }
        return found->second;
    }

    const FlatMachine& flat_;
};

void require(bool implemented, const std::string& path, const std::string& what) {
    if (!implemented) {
        throw Error("bad-machine", "the native models implement " + path + " = " + what + " only", path);
    }
}

}  // namespace

Machine Machine::from_flat(const FlatMachine& flat) {
    const Reader r(flat);
    Machine m{};
#define READ(section, field) r.read(#section "." #field, m.section.field)
    READ(clock, tck_ns);
    READ(organisation, channels);
    READ(organisation, bank_groups);
    READ(organisation, banks);
    READ(organisation, rows);
    READ(organisation, columns);
    READ(organisation, column_bytes);
    READ(bank_unit, lanes);
    READ(bank_unit, accumulators);
    READ(buffer, columns);
    READ(timing, nBL);
    READ(timing, nCL);
    READ(timing, nCWL);
    READ(timing, nRCDRD);
    READ(timing, nRCDRDMAC);
    READ(timing, nRCDEWMUL);
    READ(timing, nRCDRDAF);
    READ(timing, nRCDRDCP);
    READ(timing, nRCDWR);
    READ(timing, nRCDWRCP);
    READ(timing, nRP);
    READ(timing, nRAS);
    READ(timing, nRC);
    READ(timing, nWR);
    READ(timing, nRTP);
    READ(timing, nCCDS);
    READ(timing, nCCDL);
    READ(timing, nRRDS);
    READ(timing, nRRDL);
    READ(timing, nFAW);
    READ(timing, nRFC);
    READ(timing, nREFI);
    READ(timing, nMODCH);
    READ(timing, nMAC2TMOD);
    READ(timing, nCMD2TMOD);
    READ(timing, nRD_latency);
    READ(timing, nRDMAC_latency);
    READ(timing, nWR_latency);
    READ(timing, nWRMAC_latency);
    READ(timing, nWRGB_latency);
    READ(timing, nWR2RDS);
    READ(timing, nWR2RDL);
    READ(timing, nWR2RDMAC);
    READ(timing, nWRA2RD);
    READ(timing, nWRGB2RDMAC);
    READ(timing, nWRMAC2RDMAC);
    READ(timing, nRD2WR);
    READ(timing, nRD2WRGB);
    READ(timing, nRD2WRMAC);
    READ(timing, nRDMAC2WR);
    READ(timing, nRDMAC2WRGB);
    READ(timing, nRDMAC2WRMAC);
    READ(timing, nWR2MAC);
    READ(timing, nRDCP2MAC);
    READ(timing, nWR2PRE);
    READ(timing, nEWMUL2PRE);
    READ(timing, nWRA2ACT);
    READ(timing, nWRA_latency);
    READ(rules, row_commands_in_register_mode);
    READ(rules, commands_during_refresh);
    READ(rules, faw_enforced);
    READ(rules, row_buffers);
    READ(rules, buffer_halves);
    READ(refresh, enabled);
    READ(refresh, pull_in);
    READ(refresh, postpone);
    READ(scratch, bytes_per_channel);
    READ(scratch, landing_cycles);
    READ(command_processor, registers);
    READ(command_processor, loop_depth);
    READ(command_processor, signals);
    READ(command_processor, shared_registers);
    READ(command_processor, controller_memory_bytes);
    READ(command_processor, instruction_memory_bytes);
    READ(vector_unit, present);
    READ(vector_unit, lanes);
    READ(vector_unit, max_operands);
    READ(vector_unit, max_ops);
    READ(vector_unit, max_scalars);
    READ(vector_unit, max_reductions);
    READ(vector_unit, pass_overhead);
    READ(vector_unit, latency_per);
    READ(link, lanes);
    READ(link, gb_per_s_per_lane);
    READ(link, latency_ns);
    READ(aim_simulator, nRRDS);
    READ(aim_simulator, nRRDL);
    READ(aim_simulator, queue_requests);
    READ(aim_simulator, lut_row);
    READ(aim_simulator, writes_to_start);
    READ(aim_simulator, writes_to_stop);
    READ(aim_simulator, refresh);
    READ(aim_simulator, blocking_reads);
    READ(aim_simulator, read_forwarding);
    READ(aim_simulator, overtaking);
    READ(aim_simulator, reversed_mask);
#undef READ
    r.read_table("vector_unit.latency.", m.vector_unit.latency);

    std::string readout;
    r.read("bank_unit.readout", readout);
    std::string mac_sum;
    r.read("bank_unit.mac_sum", mac_sum);
    require(readout == "bf16", "bank_unit.readout", "bf16");
    require(mac_sum == "fp32_tree", "bank_unit.mac_sum", "fp32_tree");
    require(m.organisation.channels >= 1 && m.organisation.channels <= 32, "organisation.channels", "1 to 32");
    require(m.organisation.banks == 16, "organisation.banks", "16");
    require(m.organisation.bank_groups >= 1 && m.organisation.banks % m.organisation.bank_groups == 0, "organisation.bank_groups",
            "a divisor of the banks");
    require(m.organisation.rows >= 1, "organisation.rows", "1 or more");
    require(m.organisation.columns >= 1 && m.organisation.columns <= 4096, "organisation.columns", "1 to 4096");
    require(m.organisation.column_bytes == 32, "organisation.column_bytes", "32");
    require(m.bank_unit.lanes == 16, "bank_unit.lanes", "16");
    require(m.bank_unit.accumulators >= 1 && m.bank_unit.accumulators <= 1024, "bank_unit.accumulators", "1 to 1024");
    require(m.buffer.columns >= 1 && m.buffer.columns <= 4096, "buffer.columns", "1 to 4096");
    require(m.command_processor.registers >= 2 && m.command_processor.registers <= 32, "command_processor.registers", "2 to 32");
    require(m.command_processor.loop_depth <= 64, "command_processor.loop_depth", "at most 64");
    require(m.scratch.bytes_per_channel >= 64 && m.scratch.bytes_per_channel % 64 == 0, "scratch.bytes_per_channel",
            "a positive multiple of 64");
    require(m.scratch_bytes() <= std::int64_t{1} << 30, "scratch.bytes_per_channel", "at most 1 GiB over all channels");
    require(m.command_processor.controller_memory_bytes >= 4 && m.command_processor.controller_memory_bytes % 4 == 0 &&
                m.command_processor.controller_memory_bytes <= std::int64_t{1} << 32,
            "command_processor.controller_memory_bytes", "whole words, at most 4 GiB");
    require(m.timing.nREFI >= 1, "timing.nREFI", "1 or more");
    require(m.clock.tck_ns > 0, "clock.tck_ns", "a positive number");
    require(m.vector_unit.lanes >= 1, "vector_unit.lanes", "1 or more");
    require(m.link.lanes >= 1 && m.link.gb_per_s_per_lane > 0, "link.lanes", "a link of positive bandwidth");
    return m;
}

}  // namespace wordline
