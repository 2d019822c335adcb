// One function a topic; each is defined in the bindings file of its name and called by module.cpp.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_build_info(nb::module_& m);
void bind_errors(nb::module_& m);
void bind_explanation(nb::module_& m);
void bind_functional(nb::module_& m);
void bind_sim_device(nb::module_& m);
void bind_timing(nb::module_& m);
void bind_trace(nb::module_& m);
