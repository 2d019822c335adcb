// What earlier channels, and earlier submissions of the same program, did in the segments of its streams.
//
// A channel that reaches a segment looks up its path: how often loops repeat and which rows, banks and counts commands name, given registers
// and memory. If a channel has gone that path from the same state before, it takes over what that one did, exactly. The vector unit has no state
// but its clock; its segments are kept as durations.
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
    std::uint32_t path = 0;  // channel streams
    SerialRun serial;        // vector streams
};

struct CauseCharge {
    std::uint32_t instruction;
    Cause cause;
    std::int64_t cycles;
};

// What one channel did in a segment.
struct SegmentRun {
    std::uint32_t path;
    ChannelState start, end;
    std::vector<CauseCharge> causes;
    std::vector<std::pair<int, std::int64_t>> signals;  // signal, cycle of its effect
    std::uint64_t submission = 0;                       // in which it was last taken over
    std::int64_t uses = 0;                              // in that submission
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

    // The number of a path; equal paths have equal numbers.
    std::uint32_t path_number(std::size_t index, const std::vector<std::int32_t>& path);

    SegmentRun* find_run(std::size_t index, std::uint32_t path, const ChannelTiming& timing);
    SegmentRun& add_run(std::size_t index, SegmentRun run);

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
    struct Part {
        std::unordered_map<std::uint64_t, Courses> courses;
        std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> path_numbers;
        std::vector<std::vector<std::int32_t>> paths;
        std::unordered_map<std::uint64_t, std::vector<std::unique_ptr<SegmentRun>>> runs;
        bool too_long = false;
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
