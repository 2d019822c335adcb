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
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wordline/channel_timing.hpp"
#include "wordline/timing.hpp"
#include "wordline/timing_segments.hpp"

namespace wordline {

// A word of controller memory that was read: the same for everything that matters if it is the same after the shift.
struct LoadedWord {
    std::int64_t address;
    std::int32_t value;
    std::uint8_t shift;
};

class LoadedWords {
public:
    void note(std::int64_t address, std::int32_t value, std::uint8_t shift);
    // Whether `load(address)` finds the same everywhere.
    template <class Load>
    bool hold(Load&& load) const {
        for (const LoadedWord& word : words_) {
            if (load(word.address) >> word.shift != word.value) {
                return false;
            }
        }
        return true;
    }
    std::size_t bytes() const { return words_.capacity() * sizeof(LoadedWord); }

private:
    std::vector<LoadedWord> words_;  // `value` shifted already
};

// What a vector stream does in a segment, from the cycle in which its first instruction starts.
struct SerialRun {
    std::int64_t cycles = 0;
    std::vector<std::pair<std::uint32_t, std::int64_t>> busy;  // instruction, cycles
    std::vector<std::pair<int, std::int64_t>> signals;         // signal, cycle of its effect
};

// How a segment goes for some registers and some memory.
struct Course {
    std::vector<std::int64_t> inputs;
    LoadedWords loads;
    Registers end_registers;
    std::uint32_t path = 0;          // channel streams
    std::vector<std::int32_t> rows;  // channel streams: what the path's row numbers stand for
    SerialRun serial;                // vector streams
};

// What one channel did in a segment.
struct SegmentRun {
    ChannelEpisode episode;
    std::shared_ptr<const std::vector<CauseCharge>> causes;  // instructions count from the first of the segment
    std::shared_ptr<const std::vector<CommandCharge>> commands;
    std::vector<std::pair<int, std::int64_t>> signals;       // signal, cycle of its effect since the start
    std::uint64_t submission = 0;                            // of its last use
    std::size_t use = 0;                                     // number of that
};

// Of one stream.
class StreamMemo {
public:
    explicit StreamMemo(const Stream& stream);

    const StreamSegments& analysis() const { return analysis_; }
    std::span<const Segment> segments() const { return analysis_.segments; }

    // What the course of segment `index` depends on, but for loads.
    void inputs_of(std::size_t index, std::int64_t argument_base, const Registers& registers, std::vector<std::int64_t>& inputs) const;

    // The course for these inputs; null if it is not known. `load(address)` reads controller memory.
    template <class Load>
    const Course* find_course(std::size_t index, std::span<const std::int64_t> inputs, Load&& load) const {
        const auto found = parts_[index].courses.find(digest(inputs));
        if (found == parts_[index].courses.end()) {
            return nullptr;
        }
        for (const std::unique_ptr<Course>& course : found->second.known) {
            if (std::ranges::equal(course->inputs, inputs) && course->loads.hold(load)) {
                return course.get();
            }
        }
        return nullptr;
    }
    const Course& add_course(std::size_t index, Course course);

    // The number of a path through segments of one shape; equal paths have equal numbers.
    std::uint32_t path_number(std::uint32_t shape, const std::vector<std::int32_t>& path);

    // A run through a segment of this shape that a channel in this phase of refresh repeats; null if none is known.
    SegmentRun* find_run(std::uint32_t shape, std::uint32_t path, const ChannelOutlook& outlook, std::int64_t refresh_phase);
    SegmentRun& add_run(std::uint32_t shape, std::uint32_t path, const ChannelOutlook& outlook, SegmentRun run);

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
        bool too_long = false;
    };
    struct Start {
        std::uint32_t path;
        ChannelOutlook outlook;
        std::map<std::int64_t, std::unique_ptr<SegmentRun>> runs;  // by the highest refresh phase
    };
    struct Shape {
        std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> path_numbers;
        std::vector<std::vector<std::int32_t>> paths;
        std::unordered_map<std::uint64_t, std::vector<Start>> starts;
    };

    template <class T>
    static std::uint64_t digest(std::span<const T> values) {
        std::uint64_t hash = 0x9E3779B97F4A7C15u;
        for (const T value : values) {
            hash = (hash ^ static_cast<std::uint64_t>(value)) * 0xC2B2AE3D27D4EB4Fu;
            hash ^= hash >> 29;
        }
        return hash;
    }
    static std::uint64_t digest(std::span<const std::int64_t> values) { return digest<std::int64_t>(values); }

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
