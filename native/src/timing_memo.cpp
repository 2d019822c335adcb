#include "wordline/timing_memo.hpp"

#include <algorithm>
#include <bit>

namespace wordline {

void LoadedWords::note(std::int64_t address, std::int32_t value, std::uint8_t shift) {
    for (LoadedWord& word : words_) {
        if (word.address == address) {
            word = {address, value >> std::min(shift, word.shift), std::min(shift, word.shift)};
            return;
        }
    }
    words_.push_back({address, value >> shift, shift});
}

StreamMemo::StreamMemo(const Stream& stream)
    : analysis_(find_segments(stream)), parts_(analysis_.segments.size()), shapes_(analysis_.shapes) {}

void StreamMemo::inputs_of(std::size_t index, std::int64_t argument_base, const Registers& registers, std::vector<std::int64_t>& inputs) const {
    inputs.assign(1, argument_base);
    for (std::uint32_t mask = segments()[index].inputs; mask != 0; mask &= mask - 1) {
        inputs.push_back(registers[static_cast<std::size_t>(std::countr_zero(mask))]);
    }
}

const Course& StreamMemo::add_course(std::size_t index, Course course) {
    const auto size = [](const Course& c) {
        return sizeof(Course) + c.inputs.size() * sizeof(std::int64_t) + c.loads.bytes() + c.serial.busy.size() * sizeof(c.serial.busy[0]) +
               c.serial.signals.size() * sizeof(c.serial.signals[0]) + c.rows.size() * sizeof(std::int32_t);
    };
    Courses& courses = parts_[index].courses[digest(course.inputs)];
    bytes_ += size(course);
    if (courses.known.size() < courses_kept) {
        return *courses.known.emplace_back(std::make_unique<Course>(std::move(course)));
    }
    std::unique_ptr<Course>& oldest = courses.known[courses.next];
    courses.next = (courses.next + 1) % courses_kept;
    bytes_ -= size(*oldest);
    *oldest = std::move(course);
    return *oldest;
}

std::uint32_t StreamMemo::path_number(std::uint32_t shape, const std::vector<std::int32_t>& path) {
    Shape& part = shapes_[shape];
    std::vector<std::uint32_t>& numbers = part.path_numbers[digest<std::int32_t>(path)];
    for (const std::uint32_t number : numbers) {
        if (part.paths[number] == path) {
            return number;
        }
    }
    bytes_ += path.size() * sizeof(std::int32_t) + sizeof path;
    part.paths.push_back(path);
    return numbers.emplace_back(static_cast<std::uint32_t>(part.paths.size() - 1));
}

SegmentRun* StreamMemo::find_run(std::uint32_t shape, std::uint32_t path, const ChannelOutlook& outlook, std::int64_t refresh_phase) {
    const auto found = shapes_[shape].starts.find(outlook.digest() + path);
    if (found == shapes_[shape].starts.end()) {
        return nullptr;
    }
    for (const Start& start : found->second) {
        if (start.path == path && start.outlook == outlook) {
            const auto run = start.runs.lower_bound(refresh_phase);
            return run != start.runs.end() && run->second->episode.low <= refresh_phase ? run->second.get() : nullptr;
        }
    }
    return nullptr;
}

SegmentRun& StreamMemo::add_run(std::uint32_t shape, std::uint32_t path, const ChannelOutlook& outlook, SegmentRun run) {
    std::vector<Start>& starts = shapes_[shape].starts[outlook.digest() + path];
    auto start = std::ranges::find_if(starts, [&](const Start& s) { return s.path == path && s.outlook == outlook; });
    if (start == starts.end()) {
        bytes_ += sizeof(Start);
        start = starts.insert(starts.end(), Start{path, outlook, {}});
    }
    bytes_ += sizeof run + run.causes->size() * sizeof(CauseCharge) + run.commands->size() * sizeof(CommandCharge) +
              run.signals.size() * sizeof(run.signals[0]);
    std::unique_ptr<SegmentRun>& kept = start->runs[run.episode.high];
    kept = std::make_unique<SegmentRun>(std::move(run));
    return *kept;
}

void StreamMemo::clear() {
    parts_ = std::vector<Part>(parts_.size());
    shapes_ = std::vector<Shape>(shapes_.size());
    bytes_ = 0;
}

TimingMemo::TimingMemo(const Program& program) {
    for (const Stream& stream : program.streams) {
        streams_.emplace_back(stream);
    }
}

void TimingMemo::begin() {
    ++submission_;
    std::size_t bytes = 0;
    for (const StreamMemo& stream : streams_) {
        bytes += stream.bytes();
    }
    if (bytes > most_bytes) {
        std::ranges::for_each(streams_, &StreamMemo::clear);
    }
}

}  // namespace wordline
