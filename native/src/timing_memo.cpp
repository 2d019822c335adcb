#include "wordline/timing_memo.hpp"

#include <algorithm>
#include <bit>

namespace wordline {

void LoadedWords::note(std::int64_t address, std::int32_t value, std::uint8_t shift) {
    for (LoadedWord& word : words_) {
        if (word.address == address) {
            word.shift = std::min<std::int32_t>(shift, word.shift);
            word.value = value >> word.shift;
            return;
        }
    }
    words_.push_back({static_cast<std::int32_t>(address), shift, value >> shift});
}

Course::Course(std::span<const std::int32_t> inputs, std::span<const LoadedWord> loads, std::span<const std::int32_t> rows,
               const Registers& registers, std::uint32_t written)
    : loads_(static_cast<std::uint32_t>(loads.size())),
      first_row_(static_cast<std::uint32_t>(inputs.size() + 3 * loads.size())),
      rows_(static_cast<std::uint32_t>(rows.size())) {
    words_.reserve(first_row_ + rows_ + static_cast<std::size_t>(std::popcount(written)));
    words_.assign(inputs.begin(), inputs.end());
    for (const LoadedWord& load : loads) {
        words_.insert(words_.end(), {load.address, load.shift, load.value});
    }
    words_.insert(words_.end(), rows.begin(), rows.end());
    for (std::uint32_t mask = written; mask != 0; mask &= mask - 1) {
        words_.push_back(registers[static_cast<std::size_t>(std::countr_zero(mask))]);
    }
}

StreamMemo::StreamMemo(const Stream& stream)
    : analysis_(find_segments(stream)), parts_(analysis_.segments.size()), shapes_(analysis_.shapes) {}

void StreamMemo::inputs_of(std::size_t index, std::int64_t argument_base, const Registers& registers, std::vector<std::int32_t>& inputs) const {
    inputs.assign({static_cast<std::int32_t>(argument_base), static_cast<std::int32_t>(argument_base >> 32)});
    for (std::uint32_t mask = segments()[index].inputs; mask != 0; mask &= mask - 1) {
        const auto number = static_cast<std::size_t>(std::countr_zero(mask));
        inputs.push_back(registers[number] >> segments()[index].input_shift[number]);
    }
    if (segments()[index].by_channel) {
        inputs.push_back(registers[channel_number_register]);
    }
}

const Course& StreamMemo::add_course(std::size_t index, std::span<const std::int32_t> inputs, Course course) {
    Courses& courses = parts_[index].courses[digest(inputs)];
    bytes_ += course.bytes();
    if (courses.known.size() < courses_kept) {
        return *courses.known.emplace_back(std::make_unique<Course>(std::move(course)));
    }
    std::unique_ptr<Course>& oldest = courses.known[courses.next];
    courses.next = (courses.next + 1) % courses_kept;
    bytes_ -= oldest->bytes();
    *oldest = std::move(course);
    return *oldest;
}

std::uint32_t StreamMemo::path_number(std::uint32_t shape, const std::vector<std::int32_t>& path) {
    Shape& part = shapes_[shape];
    std::vector<std::uint32_t>& numbers = part.path_numbers[digest(path)];
    for (const std::uint32_t number : numbers) {
        if (part.paths[number] == path) {
            return number;
        }
    }
    bytes_ += path.size() * sizeof(std::int32_t) + sizeof path;
    part.paths.push_back(path);
    return numbers.emplace_back(static_cast<std::uint32_t>(part.paths.size() - 1));
}

SegmentStart* StreamMemo::find_start(std::uint32_t shape, std::uint32_t path, const ChannelOutlook& outlook) {
    const auto found = shapes_[shape].starts.find(outlook.digest() + path);
    if (found != shapes_[shape].starts.end()) {
        for (const std::unique_ptr<SegmentStart>& start : found->second) {
            if (start->path == path && start->outlook == outlook) {
                return start.get();
            }
        }
    }
    return nullptr;
}

SegmentStart& StreamMemo::add_start(std::uint32_t shape, std::uint32_t path, const ChannelOutlook& outlook) {
    bytes_ += sizeof(SegmentStart);
    return *shapes_[shape].starts[outlook.digest() + path].emplace_back(std::make_unique<SegmentStart>(path, outlook));
}

SegmentRun& StreamMemo::add_run(SegmentStart& start, SegmentRun run) {
    bytes_ += sizeof run + run.causes->size() * sizeof(CauseCharge) + run.commands->size() * sizeof(CommandCharge) +
              run.signals.size() * sizeof(run.signals[0]);
    const std::int64_t low = run.episode.low, high = run.episode.high;
    const auto place = std::ranges::lower_bound(start.phases, high, {}, &SegmentStart::Phases::high);
    return *start.phases.insert(place, {low, high, std::make_unique<SegmentRun>(std::move(run))})->run;
}

void StreamMemo::add_continuation(SegmentRun& run, const Continuation& continuation, SegmentStart& start) {
    bytes_ += sizeof(run.continuations[0]);
    run.continuations.emplace_back(continuation, &start);
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
