// Cycle model of one channel (profile `corrected`): when each of its DRAM commands issues, and what every cycle was spent on.
//
// Event-driven: the stream of the channel hands over its instructions in order, and the model computes the earliest cycle that all rules
// allow. `docs/timing.md` states the rules; every interval comes from the machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "wordline/command_processor.hpp"
#include "wordline/machine.hpp"

namespace wordline {

class ChannelLog;
struct Binding;
enum class Rule : std::uint8_t;

// What a cycle of a channel was spent on.
enum class Cause : std::uint8_t { mac, row_turn, refresh, fill, readout, column_access, vector, link, wait, issue, tail };
constexpr std::size_t n_causes = 11;
inline constexpr std::array<const char*, n_causes> cause_names{"mac",    "row_turn", "refresh", "fill",  "readout", "column_access",
                                                               "vector", "link",     "wait",    "issue", "tail"};

enum class DramCommand : std::uint8_t {
    act, act16, pre, prea, refab, tmod, mac16, mac, rd, wr, rdcp, wrcp, wrgb, wrmac16, rdmac16,
    af16, ewmul16, rdaf16, wra16  // in traces only
};
constexpr std::size_t n_dram_commands = 19;
inline constexpr std::array<const char*, n_dram_commands> dram_command_names{
    "ACT", "ACT16", "PRE", "PREA", "REFab", "TMOD", "MAC16", "MAC", "RD", "WR", "RDCP", "WRCP", "WRGB", "WRMAC16", "RDMAC16",
    "AF16", "EWMUL16", "RDAF16", "WRA16"};

using CauseCycles = std::array<std::int64_t, n_causes>;
using CommandCounts = std::array<std::int64_t, n_dram_commands>;

// One issued command. bank, row, column are -1 where the command has none; column is the buffer column of WRGB and the accumulator of
// WRMAC16 and RDMAC16.
struct TraceEntry {
    std::int64_t cycle;
    std::int32_t channel, bank, row, column;
    DramCommand command;
};

struct ChannelSummary {
    std::int64_t end = 0;             // cycle after the last effect of the channel's stream
    std::int64_t refresh_charge = 0;  // nRFC for the refresh debt left; negative for what was prepaid
    std::int64_t refreshes = 0;
    CauseCycles causes{};             // sums to end + refresh_charge
    CommandCounts commands{};
    std::int64_t open_cycles = 0;     // before `end`, with a row open in some bank
    bool rows_open = false;           // at the end
};

constexpr bool covers_all_banks(DramCommand command) {
    return command == DramCommand::mac16 || command == DramCommand::act16 || command == DramCommand::af16 || command == DramCommand::ewmul16 ||
           command == DramCommand::wra16;
}

constexpr bool reads_registers(DramCommand command) { return command == DramCommand::rdmac16 || command == DramCommand::rdaf16; }

constexpr bool needs_register_mode(DramCommand command) {
    return command == DramCommand::wrgb || command == DramCommand::wrmac16 || reads_registers(command);
}

// The DRAM command of a burst instruction; false for instructions that are no burst.
bool burst_command(Opcode opcode, DramCommand& command);

// Throws Error("bad-machine") for a machine that the model does not implement or whose refresh cannot keep up.
void check_timing_machine(const Machine& machine);

// What the future of a channel depends on, and what it was charged so far: all of a ChannelTiming that changes.
class ChannelState {
    friend class ChannelTiming;
    friend struct ChannelOutlook;
    friend struct ChannelEpisode;

    static constexpr std::size_t max_banks = 16;

    template <class T>
    struct PerBank {
        std::array<T, max_banks> values;
        T& operator[](std::int32_t bank) { return values[static_cast<std::size_t>(bank)]; }
        const T& operator[](std::int32_t bank) const { return values[static_cast<std::size_t>(bank)]; }
    };

    // Cycles of the last command of each sort; group arrays are indexed by bank group.
    struct History {
        std::int64_t any, not_mac16;               // any command; any but MAC16
        std::int64_t tmod, refab;
        std::int64_t act_any, act_single, act16, pre_any, prea;  // "any" includes the all-bank form
        PerBank<std::int64_t> act, act_group, pre;
        std::int64_t column_read_any, column_read_all, mac16;  // RD, MAC, RDCP, MAC16, EWMUL16; the all-bank ones alone
        PerBank<std::int64_t> column_read, column_read_group;
        std::int64_t read_any;                     // those, RDMAC16 and RDAF16
        std::int64_t af16, ewmul16, wra16;
        std::int64_t column_write_any;             // WR, WRCP
        PerBank<std::int64_t> column_write, column_write_group;
        std::int64_t write_any;                    // those, WRGB and WRMAC16
        std::int64_t rd, wr, rdcp, wrgb, wrmac16, rdmac16;
        PerBank<std::int64_t> wr_group;
        std::array<std::int64_t, 4> activates;     // for nFAW, oldest first
    };
    static constexpr std::size_t n_times = sizeof(History) / sizeof(std::int64_t);  // it holds nothing else

    std::int64_t now_ = 0;  // issue slot of the next instruction; all cycles before it are charged
    std::int64_t landed_ = 0;
    std::int64_t due_ = 0;  // from this cycle on only the forced refresh may issue
    std::uint32_t instruction_ = 0;
    std::uint32_t landing_instruction_ = 0;
    Cause landing_cause_ = Cause::readout;
    bool register_mode_ = false;
    Cause visit_cause_ = Cause::fill;      // of the last register command: what the way back to normal mode serves
    Cause activation_cause_ = Cause::row_turn;  // of the last activation: what waits for its nRCD serve
    std::int64_t entry_cycles_ = 0;        // charged to fill by an explicit TMOD whose visit has had no command yet
    std::uint32_t entry_instruction_ = 0;
    std::int32_t common_row_ = -1;         // row open in all banks, -1: none or not the same
    std::int32_t open_banks_ = 0;
    PerBank<std::int32_t> row_{};            // -1: closed
    PerBank<std::int32_t> refreshed_row_{};  // row that a forced refresh closed and nothing has opened since, -1: none
    History last_{};
    CauseCycles causes_{};
    std::int64_t refreshes_ = 0;
    std::int64_t open_cycles_ = 0;  // cycles of the last PRE less those of the first ACT, over all times that rows were open
    CommandCounts commands_{};
};

// What the future of a channel depends on, up to shifts: cycles count from its present one, instructions from that which comes next, and rows are
// numbered as a path names them. Refresh is left out, see ChannelTiming::refresh_phase().
struct ChannelOutlook {
    std::int64_t landing, entry_cycles;               // cycles until the last data land; ChannelState::entry_cycles_
    std::int32_t landing_instruction, entry_instruction;
    std::array<std::int32_t, ChannelState::n_times> ages;  // of the history; all the same from the horizon on
    std::array<std::int16_t, ChannelState::max_banks> row, refreshed_row;  // closed_row, other_row, or a number
    std::int32_t causes;  // of what lands, of the visit, of the activation: a byte each
    std::int32_t register_mode;

    static constexpr std::int16_t closed_row = -1, other_row = -2;

    std::uint64_t digest() const;
    bool operator==(const ChannelOutlook& other) const;
};

// What a channel did in a segment, for others to take over that start with an equal outlook, on an equal path, in a refresh phase from low to high.
struct ChannelEpisode {
    std::int64_t low, high;
    ChannelState end;     // of the channel that did it
    std::int64_t start;   // cycle in which it began
    std::uint32_t first;  // instruction with which it began
    std::int64_t refreshes;
    CauseCycles causes;
    CommandCounts commands;
    std::int64_t open_cycles;  // what came to ChannelState::open_cycles_
    // Rows at the end, by the path's numbers; or as they were: open rows, and rows that a forced refresh had closed.
    static constexpr std::int16_t own_row = -2, own_refreshed_row = -3;
    std::array<std::int16_t, ChannelState::max_banks> row, refreshed_row;
    std::int16_t common_row;
    bool alike;                 // all banks end with the same numbers
    std::int64_t settled_after;  // cycles after its end from which on nothing that it did holds anything up
};

class ChannelTiming : private ChannelState {
public:
    // `instruction_causes`: one entry for each instruction of the stream, added to. `trace` may be null. With `step_bursts` every column is
    // issued by itself; the result is the same. `instruction_commands`, likewise one entry for each instruction, may be null.
    ChannelTiming(const Machine& machine, int channel, CauseCycles* instruction_causes, std::vector<TraceEntry>* trace, bool step_bursts,
                  CommandCounts* instruction_commands = nullptr);

    // An instruction that only takes its issue slot.
    void slot(std::uint32_t instruction);
    // The stream stands still until cycle `until`.
    void hold(std::int64_t until, Cause cause, std::uint32_t instruction);
    // SIGNAL: takes its slot; returns the cycle of its effect.
    std::int64_t signal(std::uint32_t instruction);
    void command(const ChannelCommand& command);
    // A burst of column or register commands, those that device programs do not have included.
    void access(DramCommand command, const ChannelCommand& c) {
        settle();
        burst(command, c);
    }
    std::int64_t now() const { return now_; }  // issue slot of the next instruction
    // Records from now on what held every command.
    void explain_to(ChannelLog* log) { log_ = log; }
    // Charges instructions in other tables from now on; returns those so far.
    std::pair<CauseCycles*, CommandCounts*> charge_to(CauseCycles* instruction_causes, CommandCounts* instruction_commands) {
        return {std::exchange(instruction_causes_, instruction_causes), std::exchange(instruction_commands_, instruction_commands)};
    }
    // Outlook before instruction `first`, which begins a path that names these rows.
    ChannelOutlook outlook(std::span<const std::int32_t> rows, std::uint32_t first) const;
    // Cycles since the refreshes so far were due; all that a later forced refresh or a REF depends on. 0 without refresh.
    std::int64_t refresh_phase() const { return refresh_rules_.enabled ? now_ - refreshes_ * t_.nREFI : 0; }
    // Cycles since a refresh became due under a wait, 0: none did. It issues there, as commands long past allow it.
    std::int64_t refresh_overdue() const { return std::max<std::int64_t>(0, now_ - due_); }
    // Begins an episode; its end gives what has been done since, `start` being the state in between.
    void begin_episode() { lowest_shift_ = -beyond, highest_shift_ = beyond; }
    ChannelEpisode end_episode(const ChannelTiming& start, std::span<const std::int32_t> rows, std::uint32_t first) const;
    // Does the same; causes of instructions are left to the caller. The episode has to live on until settle() or the end.
    void follow(const ChannelEpisode& episode, std::span<const std::int32_t> rows, std::uint32_t first);
    // History and rows of the banks may lag behind the last episode followed, while no command needs them; this brings them up to date.
    void settle() {
        if (lagging_ != nullptr) [[unlikely]] {
            catch_up();
        }
    }
    bool lags() const { return lagging_ != nullptr; }
    // While it lags: the row that all banks have open, and that which refresh closed in all; -1: none.
    std::int32_t open_row() const { return common_row_; }
    std::int32_t refreshed_row() const { return common_refreshed_row_; }
    // Whether outlooks can be told apart: the intervals of the machine are not absurdly long.
    bool has_outlook() const { return horizon_ < (std::int64_t{1} << 30); }
    ChannelSummary finish();

private:
    static constexpr std::int64_t never = -(std::int64_t{1} << 40);  // before any constraint reaches
    static constexpr std::int64_t beyond = std::int64_t{1} << 60;

    // Earliest cycle of a command and the cause of the wait for it: that of the constraint which ends last.
    struct Ready {
        std::int64_t at;
        Cause cause;
        void raise(std::int64_t earlier, std::int64_t interval, Rule, Cause why) {
            if (earlier + interval > at) {
                at = earlier + interval;
                cause = why;
            }
        }
    };
    // The same for an explanation.
    struct Held;

    static std::int64_t horizon(const Machine::Timing& t);
    static Cause own_cause(DramCommand command);
    std::int32_t group(std::int32_t bank) const { return bank / banks_per_group_; }

    void charge(Cause cause, std::int64_t cycles) {
        causes_[static_cast<std::size_t>(cause)] += cycles;
        instruction_causes_[instruction_][static_cast<std::size_t>(cause)] += cycles;
    }

    Ready ready(DramCommand command, std::int32_t bank, Cause own) const;
    Binding binding(DramCommand command, std::int32_t bank) const;
    // `R` is Ready or Held.
    template <class R>
    void raise_all(R& r, DramCommand command, std::int32_t bank, Cause own) const;
    template <class R>
    void raise_read_gap(R& r, DramCommand command, std::int32_t bank, Cause own) const;
    template <class R>
    void raise_write_gap(R& r, std::int32_t bank, Cause own) const;
    template <class R>
    void raise_activation(R& r, std::int32_t bank, std::int32_t interval, Rule rule) const;
    template <class R>
    void raise_row_rules(R& r, DramCommand command, std::int32_t bank, Cause own) const;

    void burst(DramCommand command, const ChannelCommand& c);
    void open_rows(DramCommand command, std::int32_t bank, std::int32_t row);
    void close_rows(DramCommand command, std::int32_t bank);
    void explicit_refresh(bool late);
    void explicit_mode(bool register_mode);
    void no_operation();

    bool prerequisite(DramCommand command, std::int32_t bank, std::int32_t row, DramCommand& step) const;
    bool row_prerequisite(bool all_banks, std::int32_t bank, std::int32_t row, DramCommand& step) const;
    Cause step_cause(DramCommand step, DramCommand command, std::int32_t bank, std::int32_t row) const;
    void catch_up();
    void take_history();
    bool banks_alike() const;
    bool refresh_due(std::int64_t cycle);
    void keep_before_refresh(std::int64_t cycle) { highest_shift_ = std::min(highest_shift_, due_ - 1 - cycle); }
    bool try_issue(DramCommand command, std::int32_t bank, std::int32_t row, Cause own);
    void refresh();
    void refresh_step(DramCommand command);
    void record(DramCommand command, std::int32_t bank, std::int32_t row, std::int32_t column, std::int64_t first, std::int64_t count,
                std::int64_t pitch);
    void update(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t last);
    void enter_visit(Cause cause);
    void explain(DramCommand command, std::int32_t bank, std::int32_t row, std::int32_t column, std::int64_t first, std::int64_t count,
                 std::int64_t pitch, bool refresh) const;

    const Machine::Timing& t_;
    const Machine::Rules& rules_;
    const Machine::Refresh& refresh_rules_;
    std::int32_t landing_cycles_;
    std::int32_t banks_, banks_per_group_;
    std::int32_t column_pitch_, register_pitch_;
    int channel_;
    bool step_bursts_;
    std::int64_t horizon_;
    CauseCycles* instruction_causes_;
    CommandCounts* instruction_commands_;
    std::vector<TraceEntry>* trace_;
    // By how many cycles the episode might have begun earlier (negative) or later against refresh and gone the same way.
    std::int64_t lowest_shift_ = 0, highest_shift_ = 0;
    const ChannelEpisode* lagging_ = nullptr;  // see settle(); all banks are alike then
    std::int64_t lag_ = 0;                     // cycles by which it was later than its episode
    std::int32_t common_refreshed_row_ = -1;
    ChannelLog* log_ = nullptr;
};

}  // namespace wordline
