#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <map>
#include <memory>
#include <mutex>

#include "bindings.hpp"
#include "conversion.hpp"
#include "wordline/error.hpp"
#include "wordline/sim_device.hpp"
#include "wordline/text.hpp"

namespace {

class PySimDevice {
public:
    PySimDevice(const nb::dict& machine, const std::string& machine_hash, std::optional<int> threads, const std::optional<std::string>& simd)
        : device_(machine_from_dict(machine), machine_hash, thread_count(threads), simd_variant(simd)) {}

    // Every call takes the device for itself, so that threads of the host may share it. Waiting for it happens without the GIL.
    std::uint32_t mmio_read(std::uint32_t offset) {
        const auto lock = take();
        return device_.mmio_read(offset);
    }

    void mmio_write(std::uint32_t offset, std::uint32_t value) {
        const auto lock = take();
        device_.mmio_write(offset, value);
    }

    std::uint64_t map_host(const nb::object& object) {
        auto buffer = std::make_unique<PythonBuffer>(object);
        const auto lock = take();
        const std::uint64_t address = device_.map_host(buffer->bytes(), buffer->writable());
        mapped_.emplace(address, std::move(buffer));
        return address;
    }

    void unmap_host(std::uint64_t address) {
        decltype(mapped_)::node_type closed;  // let go after the lock: that may run any code of the buffer's owner
        const auto lock = take();
        if (!device_.unmap_host(address)) {
            throw wordline::Error("bad-range", "no host window is open at " + wordline::hexadecimal(address));
        }
        closed = mapped_.extract(address);
    }

    bool advance() {
        return run_without_gil([this] {
            const std::lock_guard lock(mutex_);
            return device_.advance();
        });
    }

    std::string fault_text() {
        const auto lock = take();
        return device_.fault_text();
    }

    nb::object last_profile() {
        const auto lock = take();
        return device_.last_profile() ? nb::cast(*device_.last_profile(), nb::rv_policy::copy) : nb::object(nb::none());
    }

private:
    std::unique_lock<std::mutex> take() { return take_without_gil(mutex_); }

    std::mutex mutex_;
    wordline::SimDevice device_;
    std::map<std::uint64_t, std::unique_ptr<PythonBuffer>> mapped_;
};

}  // namespace

void bind_sim_device(nb::module_& m) {
    nb::class_<PySimDevice>(m, "SimDevice",
                            "A simulated device behind the device interface (wordline.runtime.device_interface): values and cycles. `machine` is Machine.flat(), "
                            "`machine_hash` Machine.hash; threads and simd default to the knobs.")
        .def(nb::init<const nb::dict&, const std::string&, std::optional<int>, const std::optional<std::string>&>(), nb::arg("machine"),
             nb::arg("machine_hash"), nb::arg("threads") = nb::none(), nb::arg("simd") = nb::none())
        .def("mmio_read", &PySimDevice::mmio_read, nb::arg("offset"), "Read a 32-bit register.")
        .def("mmio_write", &PySimDevice::mmio_write, nb::arg("offset"), nb::arg("value"), "Write a 32-bit register.")
        .def("map_host", &PySimDevice::map_host, nb::arg("buffer"), "Open a window onto a contiguous buffer; returns its device address.")
        .def("unmap_host", &PySimDevice::unmap_host, nb::arg("address"), "Close a window.")
        .def("advance", &PySimDevice::advance, "Answer all pending descriptors (the GIL is released); False when there were none.")
        .def("fault_text", &PySimDevice::fault_text, "What the last error was, for people.")
        .def("last_profile", &PySimDevice::last_profile, "The timing result of the last EXECUTE with timing, or None.");
}
