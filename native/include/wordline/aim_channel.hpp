// One channel of the public AiM simulator (profile `aim-simulator`): its queues, the order in which it serves them, and its banks.
//
// Event-driven: the host hands over instructions with the cycle of their decoding, and the channel is advanced from event to event; a burst
// of one AiM instruction is one event as far as nothing can come between. `docs/timing.md` states the rules, tests/support/ticking_aim.py
// is the same cycle by cycle.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "wordline/aim_log.hpp"
#include "wordline/channel_timing.hpp"
#include "wordline/critical_path.hpp"
#include "wordline/machine.hpp"
#include "wordline/trace.hpp"

namespace wordline {

// Earliest cycles of DRAM commands by the intervals of the published controller, and which rows are open.
class AimBanks {
public:
    explicit AimBanks(const Machine& machine);

    // Earliest cycle of a command, the mode left aside. Not for TMOD, which nothing holds.
    std::int64_t ready(DramCommand command, std::int32_t bank) const;
    // The rule that gives that cycle.
    Binding binding(DramCommand command, std::int32_t bank) const;
    // The command that has to issue next for `command`, the mode left aside.
    DramCommand next(DramCommand command, std::int32_t bank, std::int32_t row) const;
    // Cycles between commands of one burst.
    std::int32_t pitch(DramCommand command) const;
    Rule pitch_rule(DramCommand command) const;
    bool any_open() const { return open_banks_ > 0; }
    void issue(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t cycle);

    // No interval reaches further back than this from a later cycle.
    std::int64_t horizon() const { return horizon_; }
    // Whether the banks at cycle `now` are as `before` was `shift` cycles earlier, but for the row that is open in all of them.
    bool repeats(const AimBanks& before, std::int64_t now, std::int64_t shift) const;
    // Lets `shift` cycles of such repetitions pass, in which `row` (-1: none) replaces the row that is open in all banks.
    void repeat(std::int64_t now, std::int64_t shift, std::int32_t row);

private:
    static constexpr std::size_t max_banks = 16;
    using PerBank = std::array<std::int64_t, max_banks>;

    template <class Raise>
    void constrain(DramCommand command, std::int32_t bank, Raise&& raise) const;
    template <class Raise>
    void column_read_gap(std::int32_t bank, Raise& raise) const;
    template <class Raise>
    void column_write_gap(std::int32_t bank, Raise& raise) const;

    // Cycles of the last command of each sort. "any" includes all-bank forms, "all" is those alone; arrays are indexed by bank or bank group.
    struct Last {
        std::int64_t tmod, refab, act_any, act_single, act_all, pre_any, pre_all;
        std::int64_t row_read_any, row_read_all;        // RD, MAC, RDCP; MAC16, AF16, EWMUL16
        std::int64_t column_read_any, column_read_all;  // the same without AF16
        std::int64_t read_any;                          // those with RDMAC16 and RDAF16
        std::int64_t column_write_any;                  // WR, WRCP
        std::int64_t write_any, not_buffer_write;       // WR, WRCP, WRA16, WRMAC16, with and without WRGB
        std::int64_t rd, wr, wra16, wrgb, wrmac16, read_register, ewmul16;
        PerBank act, act_group, pre, row_read, column_read_group, column_write, column_write_group, wr_group;
    };

    using Times = std::array<std::int64_t, sizeof(Last) / sizeof(std::int64_t)>;

    std::int32_t group(std::int32_t bank) const { return bank / banks_per_group_; }

    const Machine::Timing* t_;
    std::int32_t nRRDS_, nRRDL_;
    std::int32_t banks_, banks_per_group_;
    std::int64_t horizon_;
    std::int32_t common_row_ = -1;  // row open in all banks, -1: none or not the same
    std::int32_t open_banks_ = 0;
    std::array<std::int32_t, max_banks> row_;  // -1: closed
    Last last_;
};

class AimChannel {
public:
    // `log` may be null.
    AimChannel(const Machine& machine, int number, const TraceOptions& options, const std::string& trace_name, AimLog* log);

    // All ticks of cycles before `limit`.
    void advance(std::int64_t limit) { run(limit, Until::limit); }
    // An instruction decoded in the cycle up to which the channel has been advanced. False if some of it did not fit and waits.
    bool offer(const TraceInstruction& instruction);
    // After an offer that did not fit: the cycle at whose start all of it had been taken.
    std::int64_t settle();
    // After the offer of a blocking instruction: the cycle in which it calls back.
    std::int64_t callback();

    // What a channel without requests is like at a cycle up to which it has been advanced: enough to know it again.
    struct Snapshot {
        AimBanks banks;
        std::int64_t cycle, now, last_read_done, writes_done, refresh_at;
        bool register_mode, write_mode;
        CommandCounts commands;
        std::int64_t open_cycles;
    };
    // False if the channel has requests, or a refresh in hand.
    bool is_idle() const;
    Snapshot snapshot(std::int64_t cycle) const;
    // Whether the channel is at `cycle` as it was at the snapshot, but for the row that is open in all banks, and no refresh came between.
    bool repeats(const Snapshot& before, std::int64_t cycle) const;
    // How often what happened since the snapshot can happen again before the next refresh.
    std::int64_t room(const Snapshot& before, std::int64_t cycle) const;
    // Lets it happen so often; `row` (-1: none) is then the one that is open in all banks.
    void repeat(const Snapshot& before, std::int64_t cycle, std::int64_t times, std::int32_t row);

    const CommandCounts& commands() const { return commands_; }
    // Before cycle `end`, up to which the channel has been advanced.
    std::int64_t open_cycles(std::int64_t end) const { return open_cycles_ + (banks_.any_open() ? end : 0); }
    std::int64_t refresh_cycles(std::int64_t end) const { return refresh_cycles_ - std::max<std::int64_t>(0, refreshed_ - end); }
    const std::vector<TraceEntry>& schedule() const { return schedule_; }

private:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    enum class Until : std::uint8_t { limit, settled, called_back };

    // Requests of one AiM instruction, or SYNC or EOC.
    struct Run {
        DramCommand command;
        bool barrier;
        std::int32_t bank, row;
        std::int64_t count;
        std::uint32_t line;
    };
    struct Ordinary {
        DramCommand command;  // RD or WR
        std::int32_t bank, row;
        std::int64_t arrival;
        std::uint32_t line;
    };
    using Queue = std::vector<Ordinary>;
    struct Choice {
        std::size_t index;     // the best request
        DramCommand step;      // its next command
        bool ready;            // which may issue
        std::int64_t another;  // when the next request that is not ready becomes so; `never`: all are
    };

    void run(std::int64_t limit, Until until);
    void serve_stream(std::int64_t bound, Until until);
    void look_around(std::int64_t limit);
    void sleep(std::int64_t limit, std::int64_t wake, bool refresh_counts);
    bool take_waiting();
    Choice best(const Queue& queue) const;
    bool waits_on(std::int32_t bank) const;
    void choose_mode();
    void serve(Queue& queue, const Choice& choice);
    void issue_refresh(DramCommand step);
    bool issue_switch(DramCommand step, std::int32_t bank, std::uint32_t line);
    void served();
    void fruitless(std::uint32_t line);
    void take_head(std::int64_t count);
    void issue_barrier();
    void under_way(DramCommand command, std::int64_t cycle);
    void push_read(std::int64_t due, Rule rule);
    void answer_read(std::uint32_t line);
    void push_write(std::int64_t done, Rule rule);
    void record(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t first, std::int64_t count, std::int64_t pitch,
                std::uint32_t line);
    void record_issue(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t first, std::int64_t count, std::int64_t pitch);
    void explain(DramCommand command, std::int32_t bank, std::int32_t row, std::int64_t first, std::int64_t count, std::int64_t pitch,
                 std::uint32_t line, const Binding& held);
    [[noreturn]] void no_end(std::uint32_t line) const;

    const Machine::Timing& t_;
    const Machine::AimSimulator& rules_;
    AimBanks banks_;
    const std::string& trace_name_;
    const bool step_bursts_;
    const std::int64_t record_limit_;
    const int number_;
    AimLog* const log_;

    std::int64_t now_ = 0;  // next cycle to tick
    bool register_mode_ = false;
    bool write_mode_ = false;
    std::vector<Run> aim_;      // the AiM queue and what of the last instruction waits for room in it
    std::size_t aim_head_ = 0;
    std::int64_t aim_requests_ = 0;
    Queue read_, write_, active_;
    TraceInstruction waiting_{};  // an instruction of which nothing has been taken yet
    bool has_waiting_ = false;
    std::int64_t refresh_at_;     // arrival of the next refresh request
    std::int64_t refreshes_wanted_ = 0;

    std::int64_t last_read_done_ = -1;     // completion of the youngest read under way: one a cycle, in order
    std::int64_t writes_done_ = -1;        // completion of the last write under way
    std::int64_t barrier_issued_ = -1;     // of the SYNC or EOC that has not called back
    std::vector<std::int64_t> reads_behind_barrier_;
    std::int64_t called_back_ = -1;        // of the blocking instruction; -1: not known
    std::int64_t fruitless_ = 0;           // row and mode commands since a request was last served

    CommandCounts commands_{};
    std::int64_t open_cycles_ = 0;  // cycles of the last PRE less those of the first ACT, over all times that rows were open
    std::int64_t refresh_cycles_ = 0, refreshed_ = 0;  // until this cycle
    std::vector<TraceEntry> schedule_;
};

}  // namespace wordline
