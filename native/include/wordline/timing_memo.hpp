// What earlier channels, earlier layers and earlier submissions of the same program did in the segments of its streams.
//
// A channel that reaches a segment looks up its course there, given registers and memory: the path, which says how often loops repeat and which
// banks, counts and rows commands name, rows being numbered in order of appearance; and the rows themselves. If a channel has gone that path
// before, through a segment of the same shape, with the same outlook, and in a phase of refresh in which refresh does the same, it takes over
// what that one did, exactly. The vector unit has no state but its clock; its segments are kept as durations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wordline/channel_timing.hpp"
#include "wordline/timing.hpp"
#include "wordline/timing_segments.hpp"

namespace wordline {

// A word of controller memory that was read, or (address -1 - number) a register: the same for everything that matters if it is the same after the
// shift.
struct LoadedWord {
    std::int32_t address, shift, value;  // value: shifted already
};

class LoadedWords {
public:
    void note(std::int64_t address, std::int32_t value, std::uint8_t shift);
    std::span<const LoadedWord> all() const { return words_; }

private:
    std::vector<LoadedWord> words_;
};

// What a vector stream does in a segment, from the cycle in which its first instruction starts.
struct SerialRun {
    std::int64_t cycles = 0;
    std::vector<std::pair<std::uint32_t, std::int64_t>> busy;  // instruction, cycles
    std::vector<std::pair<int, std::int64_t>> signals;         // signal, cycle of its effect

    std::size_t bytes() const { return busy.size() * sizeof(busy[0]) + signals.size() * sizeof(signals[0]); }
};

// How a segment goes for some registers and some memory. Its parts lie in one array, since thousands of them are gone through in each submission.
class Course {
public:
    // `rows`: of channel streams, what the path's row numbers stand for. `written`: registers that the segment may have changed.
    Course(std::span<const std::int32_t> inputs, std::span<const LoadedWord> loads, std::span<const std::int32_t> rows, const Registers& registers,
           std::uint32_t written);

    // A register that has a word of memory at the end, whatever it is.
    struct Reload {
        std::uint8_t reg;
        std::int32_t address;
    };
    std::vector<Reload> reloads{};

    // Whether it goes like that for these inputs and what `load(address)` finds in controller memory.
    template <class Load>
    bool holds(std::span<const std::int32_t> inputs, Load&& load) const {
        const std::int32_t* word = words_.data();
        for (const std::int32_t input : inputs) {  // of one segment all have as many
            if (input != *word++) {
                return false;
            }
        }
        for (std::uint32_t i = 0; i < loads_; ++i, word += 3) {
            if (load(word[0]) >> word[1] != word[2]) {
                return false;
            }
        }
        return true;
    }
    std::span<const std::int32_t> rows() const { return {words_.data() + first_row_, rows_}; }
    const std::int32_t* end_registers() const { return words_.data() + first_row_ + rows_; }  // those that may be written, by number
    std::size_t bytes() const { return sizeof *this + words_.size() * sizeof(std::int32_t) + serial.bytes(); }

    std::uint32_t path = 0;  // channel streams
    SerialRun serial;        // vector streams

private:
    std::uint32_t loads_, first_row_, rows_;
    std::vector<std::int32_t> words_;  // inputs; address, shift and value of loads; rows; registers
};

struct SegmentStart;

// Where a channel gets when it has gone through a segment and waited.
struct Continuation {
    std::int64_t elapsed;  // since the end, up to ChannelEpisode::settled_after
    std::uint32_t distance, shape, path;
    std::int32_t open_row, refreshed_row;  // as the path numbers them

    bool operator==(const Continuation&) const = default;
};

// What one channel did in a segment.
struct SegmentRun {
    ChannelEpisode episode;
    std::shared_ptr<const std::vector<CauseCharge>> causes;  // instructions count from the first of the segment
    std::shared_ptr<const std::vector<CommandCharge>> commands;
    std::vector<std::pair<int, std::int64_t>> signals;       // signal, cycle of its effect since the start
    std::uint64_t submission = 0;                            // of its last use
    std::size_t use = 0;                                     // number of that
    std::vector<std::pair<Continuation, SegmentStart*>> continuations{};
};

// All that is known of channels with one outlook on one path.
struct SegmentStart {
    struct Phases {
        std::int64_t low, high;
        std::unique_ptr<SegmentRun> run;
    };

    std::uint32_t path;
    ChannelOutlook outlook;
    std::vector<Phases> phases{};  // of refresh, ascending; they do not overlap

    // What a channel in this phase of refresh repeats; null if it is not known.
    SegmentRun* find(std::int64_t refresh_phase) const {
        const auto found = std::ranges::lower_bound(phases, refresh_phase, {}, &Phases::high);
        return found != phases.end() && found->low <= refresh_phase ? found->run.get() : nullptr;
    }
};

// Of one stream.
class StreamMemo {
public:
    explicit StreamMemo(const Stream& stream);

    const StreamSegments& analysis() const { return analysis_; }
    std::span<const Segment> segments() const { return analysis_.segments; }

    // What the course of segment `index` depends on, but for loads.
    void inputs_of(std::size_t index, std::int64_t argument_base, const Registers& registers, std::vector<std::int32_t>& inputs) const;

    // The course for these inputs; null if it is not known. `load(address)` reads controller memory. `lane`: whose last course is the first guess.
    template <class Load>
    const Course* find_course(std::size_t index, std::size_t lane, std::span<const std::int32_t> inputs, Load&& load) {
        Part& part = parts_[index];
        if (lane >= part.last.size()) {
            part.last.resize(lane + 1);
        }
        if (part.last[lane] != nullptr && part.last[lane]->holds(inputs, load)) {
            return part.last[lane];
        }
        const auto found = part.courses.find(digest(inputs));
        if (found != part.courses.end()) {
            for (const std::unique_ptr<Course>& course : found->second.known) {
                if (course->holds(inputs, load)) {
                    return part.last[lane] = course.get();
                }
            }
        }
        return nullptr;
    }
    const Course& add_course(std::size_t index, std::span<const std::int32_t> inputs, Course course);

    // The number of a path through segments of one shape; equal paths have equal numbers.
    std::uint32_t path_number(std::uint32_t shape, const std::vector<std::int32_t>& path);

    // Channels with this outlook on this path through segments of one shape; null if nothing is known of them.
    SegmentStart* find_start(std::uint32_t shape, std::uint32_t path, const ChannelOutlook& outlook);
    SegmentStart& add_start(std::uint32_t shape, std::uint32_t path, const ChannelOutlook& outlook);
    SegmentRun& add_run(SegmentStart& start, SegmentRun run);
    void add_continuation(SegmentRun& run, const Continuation& continuation, SegmentStart& start);

    // Segments that run for too long to be kept.
    bool too_long(std::size_t index) const { return parts_[index].too_long; }
    void set_too_long(std::size_t index) { parts_[index].too_long = true; }

    void clear();
    std::size_t bytes() const { return bytes_; }

private:
    static constexpr std::size_t courses_kept = 8;  // for the same inputs: contexts and pages come and go

    struct Courses {
        std::vector<std::unique_ptr<Course>> known;
        std::size_t next = 0;  // to be replaced
    };
    struct Part {  // by segment
        std::unordered_map<std::uint64_t, Courses> courses;
        std::vector<const Course*> last;  // by lane
        bool too_long = false;
    };
    struct Shape {
        std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> path_numbers;
        std::vector<std::vector<std::int32_t>> paths;
        std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<SegmentStart>>> starts;
    };

    static std::uint64_t digest(std::span<const std::int32_t> values) {
        std::uint64_t hash = 0x9E3779B97F4A7C15u;
        for (const std::int32_t value : values) {
            hash = (hash ^ static_cast<std::uint32_t>(value)) * 0xC2B2AE3D27D4EB4Fu;
            hash ^= hash >> 29;
        }
        return hash;
    }

    StreamSegments analysis_;
    std::vector<Part> parts_;
    std::vector<Shape> shapes_;
    std::size_t bytes_ = 0;
};

// Of one program. Not for use by two threads at a time.
class TimingMemo {
public:
    explicit TimingMemo(const Program& program);

    // Before each submission: forgets everything if there is too much of it.
    void begin();
    std::uint64_t submission() const { return submission_; }
    StreamMemo& stream(std::size_t number) { return streams_[number]; }

private:
    static constexpr std::size_t most_bytes = std::size_t{192} << 20;

    std::vector<StreamMemo> streams_;
    std::uint64_t submission_ = 0;
};

}  // namespace wordline
