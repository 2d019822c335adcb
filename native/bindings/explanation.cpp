#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "bindings.hpp"
#include "wordline/critical_path.hpp"

namespace {

using wordline::Event;
using wordline::Explanation;
using wordline::PathPart;

using Numbers = nb::ndarray<nb::numpy, std::int64_t>;

// A numpy array [rows, width] of what `fields` gives for each row.
template <class Row, class Fields>
Numbers table(const std::vector<Row>& rows, Fields fields) {
    constexpr std::size_t width = std::tuple_size_v<decltype(fields(rows.front()))>;
    auto values = std::make_unique<std::int64_t[]>(rows.size() * width);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = fields(rows[i]);
        std::copy(row.begin(), row.end(), values.get() + i * width);
    }
    std::int64_t* const data = values.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<std::int64_t*>(p); });
    const std::array<std::size_t, 2> shape{rows.size(), width};
    return Numbers(data, 2, shape.data(), owner);
}

template <class Enum>
std::int64_t number(Enum value) {
    return static_cast<std::int64_t>(value);
}

Numbers path_table(const Explanation& explanation) {
    return table(explanation.path, [](const PathPart& p) {
        return std::array<std::int64_t, 10>{p.begin, p.end, p.times, p.lane, number(p.rule), number(p.kind), number(p.command), p.bank, p.row, p.instruction};
    });
}

Numbers event_table(const Explanation& explanation, std::size_t lane) {
    return table(explanation.recording.lanes().at(lane).events, [](const Event& e) {
        return std::array<std::int64_t, 12>{e.first,  e.last, e.count,  number(e.kind),  number(e.command), e.bank,
                                            e.row,    e.column, e.instruction, number(e.rule), number(e.pitch),  e.due ? 1 : 0};
    });
}

nb::list lane_list(const Explanation& explanation) {
    nb::list lanes;
    for (const wordline::Lane& lane : explanation.recording.lanes()) {
        lanes.append(nb::make_tuple(wordline::lane_kind_names[static_cast<std::size_t>(lane.kind)], lane.stream, lane.channels));
    }
    return lanes;
}

template <class Names>
nb::tuple name_tuple(const Names& names) {
    nb::list list;
    for (const char* name : names) {
        list.append(name);
    }
    return nb::tuple(list);
}

}  // namespace

void bind_explanation(nb::module_& m) {
    m.attr("RULES") = name_tuple(wordline::rule_names);
    m.attr("EVENT_KINDS") = name_tuple(wordline::event_kind_names);
    nb::class_<Explanation>(m, "Explanation", "What a model recorded, and the critical path of it.")
        .def_prop_ro("path", &path_table, nb::rv_policy::automatic,
                     "[parts, 10] begin, end, times, lane, rule, kind, command, bank, row, instruction; in order of time.")
        .def_prop_ro("lanes", &lane_list, "(kind, stream, mask of channels) of each lane.")
        .def("events", &event_table, nb::arg("lane"), nb::rv_policy::automatic,
             "[events, 12] first, last, count, kind, command, bank, row, column, instruction, rule, rule of the pitch, whether nothing held it.");
}
