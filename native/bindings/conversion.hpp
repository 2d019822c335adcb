// Conversions between Python objects and the native core that several bindings need.
#pragma once

#include <nanobind/nanobind.h>

#include "wordline/machine.hpp"

namespace nb = nanobind;

// The native machine from `Machine.flat()`. Raises wordline.errors.WordlineError("bad-machine").
wordline::Machine machine_from_dict(const nb::dict& flat);
