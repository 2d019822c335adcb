// Taking over what another channel did: the same commands, at other cycles, on other rows.
#include <bit>
#include <cstring>
#include <type_traits>

#include "wordline/channel_timing.hpp"

namespace wordline {
namespace {

// Numbers of rows in the order of a path.
class RowNumbers {
public:
    explicit RowNumbers(std::span<const std::int32_t> rows) : rows_(rows) {}
    // -1: the path does not name it.
    std::int16_t of(std::int32_t row) {
        if (row != last_) {
            const auto found = std::ranges::find(rows_, row);
            last_ = row;
            number_ = found == rows_.end() ? std::int16_t{-1} : static_cast<std::int16_t>(found - rows_.begin());
        }
        return number_;
    }

private:
    std::span<const std::int32_t> rows_;
    std::int32_t last_ = -1;  // no row
    std::int16_t number_ = -1;
};

constexpr std::int64_t longest_age = std::int64_t{1} << 30;

using Words = std::array<std::uint64_t, sizeof(ChannelOutlook) / sizeof(std::uint64_t)>;
static_assert(sizeof(ChannelOutlook) % sizeof(std::uint64_t) == 0 && std::has_unique_object_representations_v<ChannelOutlook>);

}  // namespace

std::uint64_t ChannelOutlook::digest() const {
    const auto words = std::bit_cast<Words>(*this);
    std::array<std::uint64_t, 4> hash{1, 2, 3, 4};
    for (std::size_t i = 0; i < words.size(); ++i) {
        std::uint64_t& part = hash[i % hash.size()];
        part = (std::rotl(part, 23) ^ words[i]) * 0x9E3779B97F4A7C15u;
    }
    return hash[0] ^ std::rotl(hash[1], 11) ^ std::rotl(hash[2], 29) ^ std::rotl(hash[3], 47);
}

bool ChannelOutlook::operator==(const ChannelOutlook& other) const { return std::memcmp(this, &other, sizeof other) == 0; }

ChannelOutlook ChannelTiming::outlook(std::span<const std::int32_t> rows, std::uint32_t first) const {
    static_assert(std::is_trivially_copyable_v<History> && n_times * sizeof(std::int64_t) == sizeof(History));
    const auto instruction = [first](std::uint32_t number) { return static_cast<std::int32_t>(number) - static_cast<std::int32_t>(first); };
    const bool landing = landed_ > now_;
    // A refresh that was due under a wait issued there: it costs no time, but when it closed the rows depends on what was before.
    const std::int64_t reach = std::min(horizon_ + refresh_overdue(), longest_age);
    ChannelOutlook seen;
    seen.landing = landing ? landed_ - now_ : 0;
    seen.entry_cycles = entry_cycles_;
    seen.landing_instruction = landing ? instruction(landing_instruction_) : 0;
    seen.entry_instruction = entry_cycles_ != 0 ? instruction(entry_instruction_) : 0;
    const auto times = std::bit_cast<std::array<std::int64_t, n_times>>(last_);
    for (std::size_t i = 0; i < n_times; ++i) {
        seen.ages[i] = static_cast<std::int32_t>(std::min(now_ - times[i], reach));
    }
    RowNumbers numbers(rows);
    const auto number = [&numbers](std::int32_t row) {
        if (row < 0) {
            return ChannelOutlook::closed_row;
        }
        const std::int16_t found = numbers.of(row);
        return found < 0 ? ChannelOutlook::other_row : found;
    };
    for (std::size_t bank = 0; bank < max_banks; ++bank) {
        seen.row[bank] = number(row_.values[bank]);
    }
    for (std::size_t bank = 0; bank < max_banks; ++bank) {
        seen.refreshed_row[bank] = number(refreshed_row_.values[bank]);
    }
    seen.causes = (landing ? static_cast<int>(landing_cause_) : 0) << 16 | static_cast<int>(visit_cause_) << 8 | static_cast<int>(activation_cause_);
    seen.register_mode = register_mode_ ? 1 : 0;
    return seen;
}

ChannelEpisode ChannelTiming::end_episode(const ChannelTiming& start, std::span<const std::int32_t> rows, std::uint32_t first) const {
    ChannelEpisode done;
    done.low = start.refresh_phase() + lowest_shift_;
    done.high = start.refresh_phase() + highest_shift_;
    done.end = *this;
    done.start = start.now_;
    done.first = first;
    done.refreshes = refreshes_ - start.refreshes_;
    done.open_cycles = open_cycles_ - start.open_cycles_;
    for (std::size_t i = 0; i < n_causes; ++i) {
        done.causes[i] = causes_[i] - start.causes_[i];
    }
    for (std::size_t i = 0; i < n_dram_commands; ++i) {
        done.commands[i] = commands_[i] - start.commands_[i];
    }
    RowNumbers numbers(rows);
    // A row that the path does not name has been there before.
    const auto number = [&numbers](std::int32_t row, std::int16_t otherwise) {
        if (row < 0) {
            return ChannelOutlook::closed_row;
        }
        const std::int16_t found = numbers.of(row);
        return found < 0 ? otherwise : found;
    };
    for (std::size_t bank = 0; bank < max_banks; ++bank) {
        done.row[bank] = number(row_.values[bank], ChannelEpisode::own_row);
        const bool was_open = refreshed_row_.values[bank] == start.row_.values[bank];
        done.refreshed_row[bank] = number(refreshed_row_.values[bank], was_open ? ChannelEpisode::own_row : ChannelEpisode::own_refreshed_row);
    }
    const auto same = [](const auto& numbers) { return std::ranges::all_of(numbers, [&](std::int16_t number) { return number == numbers[0]; }); };
    done.alike = same(done.row) && same(done.refreshed_row);
    const auto times = std::bit_cast<std::array<std::int64_t, n_times>>(last_);
    done.settled_after = std::max(landed_, *std::ranges::max_element(times) + horizon_) - now_;
    const bool untouched = std::all_of(done.row.begin(), done.row.begin() + banks_, [](std::int16_t row) { return row == ChannelEpisode::own_row; });
    done.common_row = untouched ? ChannelEpisode::own_row : number(common_row_, ChannelOutlook::closed_row);
    return done;
}

// Whether every bank has the same row open and had the same row closed by refresh.
bool ChannelTiming::banks_alike() const {
    return lagging_ != nullptr || ((common_row_ >= 0 || open_banks_ == 0) &&
                                   std::ranges::all_of(refreshed_row_.values, [this](std::int32_t row) { return row == refreshed_row_.values[0]; }));
}

void ChannelTiming::follow(const ChannelEpisode& episode, std::span<const std::int32_t> rows, std::uint32_t first) {
    const bool alike = episode.alike && banks_alike();
    if (!alike) {
        settle();
    }
    const auto row = [rows](std::int16_t number, std::int32_t open, std::int32_t refreshed) {
        switch (number) {
            case ChannelOutlook::closed_row:
                return -1;
            case ChannelEpisode::own_row:
                return open;
            case ChannelEpisode::own_refreshed_row:
                return refreshed;
            default:
                return rows[static_cast<std::size_t>(number)];
        }
    };
    if (alike) {
        const std::int32_t refreshed = lagging_ != nullptr ? common_refreshed_row_ : refreshed_row_.values[0];
        common_refreshed_row_ = row(episode.refreshed_row[0], common_row_, refreshed);
        common_row_ = row(episode.row[0], common_row_, -1);
    } else {
        for (std::size_t bank = 0; bank < max_banks; ++bank) {
            const std::int32_t open = row_.values[bank];
            row_.values[bank] = row(episode.row[bank], open, -1);
            refreshed_row_.values[bank] = row(episode.refreshed_row[bank], open, refreshed_row_.values[bank]);
        }
        common_row_ = row(episode.common_row, common_row_, -1);
    }
    const ChannelState& end = episode.end;
    const std::int64_t later = now_ - episode.start;
    const std::uint32_t further = first - episode.first;
    now_ = end.now_ + later;
    landed_ = end.landed_ + later;
    due_ += episode.refreshes * (refresh_rules_.enabled ? t_.nREFI : 0);
    refreshes_ += episode.refreshes;
    instruction_ = end.instruction_ + further;
    landing_instruction_ = end.landing_instruction_ + further;
    entry_instruction_ = end.entry_instruction_ + further;
    landing_cause_ = end.landing_cause_;
    register_mode_ = end.register_mode_;
    visit_cause_ = end.visit_cause_;
    activation_cause_ = end.activation_cause_;
    entry_cycles_ = end.entry_cycles_;
    open_cycles_ += episode.open_cycles + later * ((open_banks_ > 0 ? 1 : 0) - (end.open_banks_ > 0 ? 1 : 0));
    open_banks_ = end.open_banks_;
    for (std::size_t i = 0; i < n_causes; ++i) {
        causes_[i] += episode.causes[i];
    }
    for (std::size_t i = 0; i < n_dram_commands; ++i) {
        commands_[i] += episode.commands[i];
    }
    lagging_ = &episode;
    lag_ = later;
    if (!alike) {
        take_history();
    }
}

void ChannelTiming::take_history() {
    auto times = std::bit_cast<std::array<std::int64_t, n_times>>(lagging_->end.last_);
    for (std::int64_t& time : times) {
        time += lag_;
    }
    last_ = std::bit_cast<History>(times);
    lagging_ = nullptr;
}

void ChannelTiming::catch_up() {
    row_.values.fill(common_row_);
    refreshed_row_.values.fill(common_refreshed_row_);
    take_history();
}

}  // namespace wordline
