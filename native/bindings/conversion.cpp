#include "conversion.hpp"

#include <string>

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
        }
    });
}
