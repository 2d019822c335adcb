#include "conversion.hpp"

#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "wordline/error.hpp"

wordline::Machine machine_from_dict(const nb::dict& flat) {
    wordline::FlatMachine values;
    for (const auto& [key, value] : flat) {
        const std::string path = nb::cast<std::string>(key);
        if (nb::isinstance<nb::bool_>(value)) {
            values.emplace(path, nb::cast<bool>(value));
        } else if (nb::isinstance<nb::int_>(value)) {
            values.emplace(path, nb::cast<std::int64_t>(value));
        } else if (nb::isinstance<nb::float_>(value)) {
            values.emplace(path, nb::cast<double>(value));
        } else {
            values.emplace(path, nb::cast<std::string>(value));
        }
    }
    return wordline::Machine::from_flat(values);
}

int thread_count(std::optional<int> threads) {
    const int count = threads ? *threads : nb::cast<int>(nb::module_::import_("wordline.knobs").attr("threads")());
    if (count < 1) {
        throw wordline::Error("bad-knob", "a model needs at least one thread, not " + std::to_string(count));
    }
    return count;
}

wordline::SimdVariant simd_variant(const std::optional<std::string>& name) {
    const std::string wanted = name ? *name : nb::cast<std::string>(nb::module_::import_("wordline.knobs").attr("simd")());
    const std::optional<wordline::SimdVariant> found = wordline::find_simd_variant(wanted);
    if (!found) {
        std::string available = "auto";
        for (const wordline::SimdVariant variant : wordline::available_simd_variants()) {
            available += std::string(", ") + wordline::simd_name(variant);
        }
        throw wordline::Error("bad-knob", "this processor cannot run the SIMD variant '" + wanted + "'", "WORDLINE_SIMD", "choose one of " + available);
    }
    return *found;
}

void raise_fault(const wordline::Fault& fault) {
    const nb::object type = nb::module_::import_("wordline.sim.fault").attr("Fault");
    const nb::object value = type(fault.stream, fault.channel, fault.instruction, fault.what());
    PyErr_SetObject(type.ptr(), value.ptr());
    throw nb::python_error();
}

PythonBuffer::PythonBuffer(nb::handle object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO) != 0) {
        throw nb::python_error();
    }
}

PythonBuffer::~PythonBuffer() {
    if (view_.obj != nullptr) {
        PyBuffer_Release(&view_);
    }
}

void bind_errors(nb::module_&) {
    nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
        try {
            std::rethrow_exception(thrown);
        } catch (const wordline::Error& error) {
            const auto optional = [](const std::string& text) { return text.empty() ? nb::object(nb::none()) : nb::object(nb::str(text.c_str())); };
            const nb::object type = nb::module_::import_("wordline.errors").attr("WordlineError");
            const nb::object value =
                type(error.code, error.what(), nb::arg("where") = optional(error.where), nb::arg("remedy") = optional(error.remedy));
            PyErr_SetObject(type.ptr(), value.ptr());
        } catch (const wordline::Interrupted&) {
            // run_without_gil has left the error of the signal handler set.
        }
    });
}
