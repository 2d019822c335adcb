#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "bindings.hpp"
#include "conversion.hpp"
#include "wordline/trace.hpp"

namespace {

using wordline::TraceTiming;

nb::tuple convert(const TraceTiming& timing) {
    nb::list commands;
    for (const std::int64_t count : timing.commands) {
        commands.append(count);
    }
    nb::list schedule;
    for (const wordline::TraceEntry& e : timing.schedule) {
        schedule.append(nb::make_tuple(e.cycle, e.channel, wordline::dram_command_names[static_cast<std::size_t>(e.command)], e.bank, e.row));
    }
    return nb::make_tuple(timing.cycles, timing.lines, timing.addressed, timing.simulated_channels, nb::tuple(commands), timing.open_cycles,
                          timing.refresh_cycles, nb::tuple(schedule), std::const_pointer_cast<wordline::Explanation>(timing.explanation));
}

template <class Model>
void bind(nb::module_& m, const char* name, const char* doc) {
    nb::class_<Model>(m, name, doc)
        .def(
            "__init__", [](Model* model, const nb::dict& machine) { new (model) Model(machine_from_dict(machine)); }, nb::arg("machine"))
        .def(
            "run",
            [](const Model& model, const nb::object& text, const std::string& name, std::int64_t record_limit, bool step_bursts, bool explain) {
                const PythonBuffer buffer(text);
                const std::string_view view(reinterpret_cast<const char*>(buffer.bytes().data()), buffer.bytes().size());
                return convert(run_without_gil([&] { return model.run(view, name, {record_limit, step_bursts, explain}); }));
            },
            nb::arg("text"), nb::arg("name"), nb::kw_only(), nb::arg("record_limit") = 0, nb::arg("step_bursts") = false, nb::arg("explain") = false,
            "(cycles, lines, mask of addressed channels, channels simulated, commands by DRAM_COMMANDS, cycles with open rows, cycles in refresh, "
            "schedule, Explanation or None). Raises WordlineError.");
}

}  // namespace

void bind_trace(nb::module_& m) {
    bind<wordline::AimSimulator>(m, "AimSimulator", "Traces as the public AiM simulator times them (profile `aim-simulator`).");
    bind<wordline::CorrectedTraces>(m, "CorrectedTraces", "Traces by the rules of profile `corrected`.");
}
