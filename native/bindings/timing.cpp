#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "conversion.hpp"
#include "wordline/program_store.hpp"
#include "wordline/timing.hpp"
#include "wordline/timing_memo.hpp"

namespace {

using wordline::StreamTiming;
using wordline::TimingResult;

using Words = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Counts = nb::ndarray<nb::numpy, std::int64_t>;

// A numpy array [rows, width] filled by `fill(row, values)`.
template <class Fill>
Counts table(std::size_t rows, std::size_t width, Fill fill) {
    auto* values = new std::int64_t[rows * width];
    nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<std::int64_t*>(p); });
    for (std::size_t row = 0; row < rows; ++row) {
        fill(row, values + row * width);
    }
    const std::array<std::size_t, 2> shape{rows, width};
    return Counts(values, 2, shape.data(), owner);
}

template <class Array>
Counts channel_table(const TimingResult& result, Array wordline::ChannelSummary::*member) {
    return table(result.channels.size(), std::tuple_size_v<Array>, [&](std::size_t row, std::int64_t* out) {
        const Array& values = result.channels[row].*member;
        std::copy(values.begin(), values.end(), out);
    });
}

std::vector<std::int64_t> channel_list(const TimingResult& result, std::int64_t wordline::ChannelSummary::*member) {
    std::vector<std::int64_t> values;
    for (const wordline::ChannelSummary& channel : result.channels) {
        values.push_back(channel.*member);
    }
    return values;
}

std::optional<std::shared_ptr<wordline::Explanation>> optional_explanation(const TimingResult& result) {
    if (result.explanation == nullptr) {
        return std::nullopt;
    }
    return std::const_pointer_cast<wordline::Explanation>(result.explanation);
}

Counts trace_table(const TimingResult& result) {
    return table(result.trace.size(), 6, [&](std::size_t row, std::int64_t* out) {
        const wordline::TraceEntry& e = result.trace[row];
        const std::array<std::int64_t, 6> fields{e.cycle, e.channel, static_cast<std::int64_t>(e.command), e.bank, e.row, e.column};
        std::copy(fields.begin(), fields.end(), out);
    });
}

nb::list access_list(const TimingResult& result) {
    nb::list entries;
    for (const wordline::Access& a : result.accesses) {
        const char* const name = a.wait ? "WAIT" : wordline::dram_command_names[static_cast<std::size_t>(a.command)];
        entries.append(nb::make_tuple(a.cycle, a.channel, name, a.count, a.bank, a.row));
    }
    return entries;
}

template <std::size_t n>
nb::tuple names(const std::array<const char*, n>& list) {
    nb::list result;
    for (const char* name : list) {
        result.append(name);
    }
    return nb::tuple(result);
}

// The model with the programs that were loaded into it.
class Model {
public:
    explicit Model(const nb::dict& machine) : machine_(machine_from_dict(machine)), model_(machine_), programs_(machine_) {}
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    int load(const nb::object& image) {
        const PythonBuffer buffer(image);
        return programs_.load(buffer.bytes());
    }

    void unload(std::int64_t slot) {
        programs_.unload(static_cast<std::size_t>(slot));
        memos_.erase(static_cast<std::size_t>(slot));
    }

    TimingResult run(std::int64_t slot, std::int64_t argument_base, const Words& memory, const wordline::TimingOptions& options) const {
        const wordline::Program& program = programs_.get(static_cast<std::size_t>(slot));
        std::optional<wordline::Fault> fault;
        std::shared_ptr<wordline::TimingMemo> memo;
        if (options.share_channels) {
            std::shared_ptr<wordline::TimingMemo>& kept = memos_[static_cast<std::size_t>(slot)];
            if (kept == nullptr) {
                kept = std::make_shared<wordline::TimingMemo>(program);
            }
            if (kept.use_count() == 1) {  // else another thread's run, or the run around a signal handler, has it: this one does without
                memo = kept;
            }
        }
        std::optional<TimingResult> result = run_without_gil([&]() -> std::optional<TimingResult> {
            try {
                return model_.run(program, argument_base, {memory.data(), memory.size()}, options, memo.get());
            } catch (const wordline::Fault& thrown) {
                fault = thrown;
                return std::nullopt;
            }
        });
        if (fault) {
            raise_fault(*fault);
        }
        return std::move(*result);
    }

private:
    wordline::Machine machine_;
    wordline::TimingModel model_;
    wordline::ProgramStore programs_;
    mutable std::map<std::size_t, std::shared_ptr<wordline::TimingMemo>> memos_;  // by slot; the GIL guards it
};

}  // namespace

void bind_timing(nb::module_& m) {
    m.attr("CAUSES") = names(wordline::cause_names);
    m.attr("DRAM_COMMANDS") = names(wordline::dram_command_names);

    nb::class_<StreamTiming>(m, "StreamTiming", "What one stream did, by index of instruction.")
        .def_prop_ro("engine", [](const StreamTiming& s) { return static_cast<int>(s.engine); })
        .def_ro("end", &StreamTiming::end)
        .def_ro("busy", &StreamTiming::busy, "Cycles of each instruction; vector and link streams.")
        .def_ro("bytes", &StreamTiming::bytes, "Bytes that each instruction carried; link streams.")
        .def_prop_ro(
            "commands",
            [](const StreamTiming& s) {
                const std::vector<wordline::CommandCounts> commands = s.all_commands();
                return table(commands.size(), wordline::n_dram_commands,
                             [&](std::size_t row, std::int64_t* out) { std::copy(commands[row].begin(), commands[row].end(), out); });
            },
            nb::rv_policy::automatic, "Commands [instructions, DRAM_COMMANDS], summed over the channels; channel streams, if asked for.")
        .def_prop_ro(
            "causes",
            [](const StreamTiming& s) {
                const std::vector<wordline::CauseCycles> causes = s.all_causes();
                return table(causes.size(), wordline::n_causes,
                             [&](std::size_t row, std::int64_t* out) { std::copy(causes[row].begin(), causes[row].end(), out); });
            },
            nb::rv_policy::automatic, "Cycles [instructions, CAUSES], summed over the channels; channel streams.");

    nb::class_<TimingResult>(m, "TimingResult", "Cycles of one submission.")
        .def_ro("cycles", &TimingResult::cycles)
        .def_ro("streams", &TimingResult::streams)
        .def_ro("simulated_channels", &TimingResult::simulated_channels)
        .def_ro("shared_segments", &TimingResult::shared_segments)
        .def_prop_ro("causes", [](const TimingResult& r) { return channel_table(r, &wordline::ChannelSummary::causes); },
                     nb::rv_policy::automatic, "Cycles [channels, CAUSES]; each row sums to `cycles`.")
        .def_prop_ro("commands", [](const TimingResult& r) { return channel_table(r, &wordline::ChannelSummary::commands); },
                     nb::rv_policy::automatic, "Commands issued [channels, DRAM_COMMANDS].")
        .def_prop_ro("ends", [](const TimingResult& r) { return channel_list(r, &wordline::ChannelSummary::end); })
        .def_prop_ro("refresh_charges", [](const TimingResult& r) { return channel_list(r, &wordline::ChannelSummary::refresh_charge); })
        .def_prop_ro("refreshes", [](const TimingResult& r) { return channel_list(r, &wordline::ChannelSummary::refreshes); })
        .def_prop_ro("open_cycles", [](const TimingResult& r) { return channel_list(r, &wordline::ChannelSummary::open_cycles); },
                     "Cycles of each channel with a row open in some bank.")
        .def_prop_ro("accesses", &access_list, "(cycle, channel, command or WAIT, count, bank, row) of every burst and wait, if asked for.")
        .def_prop_ro("explanation", &optional_explanation,
                     "What held every event and the critical path, or None if it was not asked for.")
        .def_prop_ro("trace", &trace_table, nb::rv_policy::automatic,
                     "[commands, 6]: cycle, channel, index in DRAM_COMMANDS, bank, row and column of every DRAM command, if it was asked for.");

    nb::class_<Model>(m, "TimingModel", "Cycle model of device programs (profile `corrected`).")
        .def(nb::init<const nb::dict&>(), nb::arg("machine"))
        .def("load_program", &Model::load, nb::arg("image"), "Checks a program image and returns its slot.")
        .def("unload_program", &Model::unload, nb::arg("slot"))
        .def(
            "run",
            [](const Model& model, std::int64_t slot, std::int64_t argument_base, const Words& cmem, bool trace, bool step_bursts,
               bool accesses, bool share_channels, bool instruction_commands, std::uint64_t instruction_limit, bool explain) {
                return model.run(slot, argument_base, cmem,
                                 {trace, step_bursts, accesses, share_channels, instruction_commands, instruction_limit, explain});
            },
            nb::arg("slot"), nb::arg("argument_base"), nb::arg("cmem"), nb::kw_only(), nb::arg("trace") = false,
            nb::arg("step_bursts") = false, nb::arg("accesses") = false, nb::arg("share_channels") = true, nb::arg("instruction_commands") = false, nb::arg("instruction_limit") = wordline::no_instruction_limit,
            nb::arg("explain") = false,
            "Times one submission. `cmem`: int32 words of the controller's memory; words past its end are zero. Raises wordline.sim.fault.Fault.");
}
