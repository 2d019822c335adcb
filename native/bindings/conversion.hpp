// Conversions between Python objects and the native core that several bindings need.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "wordline/command_processor.hpp"
#include "wordline/interruption.hpp"
#include "wordline/machine.hpp"
#include "wordline/simd.hpp"

namespace nb = nanobind;

// The native machine from `Machine.flat()`. Raises WordlineError("bad-machine").
wordline::Machine machine_from_dict(const nb::dict& flat);

// How a model runs; what is not given comes from wordline.knobs. Raises WordlineError("bad-knob").
int thread_count(std::optional<int> threads);
wordline::SimdVariant simd_variant(const std::optional<std::string>& name);

// wordline.sim.fault.Fault for a fault of a device program.
[[noreturn]] void raise_fault(const wordline::Fault& fault);

// Runs long work without the GIL. A Python signal handler that raises (Ctrl-C) ends it: the Python error is then set, and Interrupted thrown.
template <class Work>
auto run_without_gil(Work&& work) {
    const nb::gil_scoped_release release;
    const wordline::InterruptionScope scope([] {
        const nb::gil_scoped_acquire acquire;
        return PyErr_CheckSignals() != 0;
    });
    return work();
}

// The contiguous bytes of an object with the buffer protocol, kept alive and unmoved. Raises BufferError or TypeError.
class PythonBuffer {
public:
    explicit PythonBuffer(nb::handle object, bool writable = false);
    PythonBuffer(PythonBuffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
    PythonBuffer(const PythonBuffer&) = delete;
    PythonBuffer& operator=(const PythonBuffer&) = delete;
    PythonBuffer& operator=(PythonBuffer&&) = delete;
    ~PythonBuffer();

    std::span<std::byte> bytes() const { return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)}; }
    bool writable() const { return view_.readonly == 0; }

private:
    Py_buffer view_{};
};

// Takes the mutex without holding the GIL meanwhile, because whoever has it may be waiting for the GIL.
inline std::unique_lock<std::mutex> take_without_gil(std::mutex& mutex) {
    std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock) {
        const nb::gil_scoped_release release;
        lock.lock();
    }
    return lock;
}

// A one-dimensional NumPy array that owns a copy of the data.
template <class T>
nb::object numpy_copy(const T* data, std::size_t n) {
    T* const copy = new T[n];
    std::copy(data, data + n, copy);
    const nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(copy, {n}, owner));
}
