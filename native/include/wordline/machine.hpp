// The machine description as the native models read it. Names are those of the machine files; every value comes from the flat form that
// `Machine.flat()` gives in Python, derived constants included, so that no constant and no formula is written twice.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace wordline {

using FlatValue = std::variant<bool, std::int64_t, double, std::string>;
using FlatMachine = std::map<std::string, FlatValue>;

struct Machine {
    struct Clock {
        double tck_ns;
    } clock;
    struct Organisation {
        std::int32_t channels, bank_groups, banks, rows, columns, column_bytes;
    } organisation;
    struct BankUnit {
        std::int32_t lanes, accumulators;
    } bank_unit;
    struct Buffer {
        std::int32_t columns;
    } buffer;
    struct Timing {  // cycles
        std::int32_t nBL, nCL, nCWL, nRCDRD, nRCDRDMAC, nRCDEWMUL, nRCDRDAF, nRCDRDCP, nRCDWR, nRCDWRCP;
        std::int32_t nRP, nRAS, nRC, nWR, nRTP, nCCDS, nCCDL, nRRDS, nRRDL, nFAW, nRFC, nREFI, nMODCH, nMAC2TMOD, nCMD2TMOD;
        std::int32_t nRD_latency, nRDMAC_latency, nWR_latency, nWRMAC_latency, nWRGB_latency;
        std::int32_t nWR2RDS, nWR2RDL, nWR2RDMAC, nWRA2RD, nWRGB2RDMAC, nWRMAC2RDMAC, nRD2WR, nRD2WRGB, nRD2WRMAC;
        std::int32_t nRDMAC2WR, nRDMAC2WRGB, nRDMAC2WRMAC, nWR2MAC, nRDCP2MAC, nWR2PRE, nEWMUL2PRE, nWRA2ACT, nWRA_latency;
    } timing;
    struct Rules {
        bool row_commands_in_register_mode, commands_during_refresh, faw_enforced;
        std::int32_t row_buffers, buffer_halves;
    } rules;
    struct Refresh {
        bool enabled;
        std::int32_t pull_in, postpone;
    } refresh;
    struct Scratch {
        std::int32_t bytes_per_channel, landing_cycles;
    } scratch;
    struct CommandProcessor {
        std::int32_t registers, loop_depth, signals, shared_registers;
        std::int64_t controller_memory_bytes, instruction_memory_bytes;
    } command_processor;
    struct VectorUnit {
        bool present;
        std::int32_t lanes, max_operands, max_ops, max_scalars, max_reductions, pass_overhead;
        std::string latency_per;
        std::map<std::string, std::int32_t> latency;  // by function, "other" for the rest

        // Cycles of one operation in a chain; operations without an entry of their own take "other".
        std::int32_t latency_of(const std::string& op) const {
            const auto found = latency.find(op);
            return found != latency.end() ? found->second : latency.at("other");
        }
    } vector_unit;
    struct Link {
        std::int32_t lanes;
        double gb_per_s_per_lane, latency_ns;
    } link;
    struct AimSimulator {
        std::int32_t nRRDS, nRRDL, queue_requests, lut_row;
        double writes_to_start, writes_to_stop;
        bool refresh, blocking_reads, read_forwarding, overtaking, reversed_mask;
    } aim_simulator;

    std::int64_t scratch_bytes() const { return std::int64_t{organisation.channels} * scratch.bytes_per_channel; }
    std::int64_t controller_words() const { return command_processor.controller_memory_bytes / 4; }

    // Throws Error("bad-machine") that names the field: missing, of another type, or a form that the native models do not implement
    // (they implement 16 banks of 16 lanes, columns of 32 bytes and bf16 read-out, for at most 32 channels and 32 registers).
    static Machine from_flat(const FlatMachine& flat);
};

}  // namespace wordline
