#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <map>
#include <memory>
#include <mutex>

#include "bindings.hpp"
#include "conversion.hpp"
#include "wordline/error.hpp"
#include "wordline/functional.hpp"
#include "wordline/program_store.hpp"
#include "wordline/text.hpp"

namespace {

using Words = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check_range(const char* what, std::int64_t first, std::int64_t count, std::int64_t limit) {
    if (first < 0 || count < 0 || first > limit || count > limit - first) {
        throw wordline::Error("bad-range", std::string(what) + " " + std::to_string(first) + ".." + std::to_string(first + count) + " of " + std::to_string(limit));
    }
}

class PyFunctionalModel {
public:
    PyFunctionalModel(const nb::dict& machine, std::optional<int> threads, const std::optional<std::string>& simd)
        : model_(machine_from_dict(machine), thread_count(threads), simd_variant(simd)), programs_(model_.machine()) {}

    int load_program(const nb::object& image) {
        const PythonBuffer buffer(image);
        const auto lock = take();
        return programs_.load(buffer.bytes());
    }

    void unload_program(std::int64_t slot) {
        const auto lock = take();
        programs_.unload(static_cast<std::size_t>(slot));
    }

    void bank_write(std::int64_t first_row, std::int64_t rows, const nb::object& data) {
        const PythonBuffer buffer(data);
        check_rows(first_row, rows);
        const std::size_t expected = static_cast<std::size_t>(rows) * model_.row_bytes();
        if (buffer.bytes().size() != expected) {
            throw wordline::Error("bad-range", std::to_string(rows) + " rows need " + std::to_string(expected) + " bytes, got " +
                                                   std::to_string(buffer.bytes().size()));
        }
        const nb::gil_scoped_release release;
        const std::lock_guard lock(mutex_);
        model_.bank_write(static_cast<std::int32_t>(first_row), static_cast<std::int32_t>(rows), buffer.bytes().data());
    }

    nb::bytes bank_read(std::int64_t first_row, std::int64_t rows) {
        check_rows(first_row, rows);
        const std::size_t size = static_cast<std::size_t>(rows) * model_.row_bytes();
        const nb::object result = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
        if (!result.is_valid()) {
            throw nb::python_error();
        }
        const auto lock = take();
        model_.bank_read(static_cast<std::int32_t>(first_row), static_cast<std::int32_t>(rows),
                         reinterpret_cast<std::byte*>(PyBytes_AS_STRING(result.ptr())));
        return nb::cast<nb::bytes>(result);
    }

    void bank_fill_zero(std::int64_t first_row, std::int64_t rows, std::uint32_t channel_mask) {
        check_rows(first_row, rows);
        const auto lock = take();
        model_.bank_fill_zero(static_cast<std::int32_t>(first_row), static_cast<std::int32_t>(rows), channel_mask);
    }

    void cmem_write(std::int64_t word, const Words& values) {
        check_range("controller memory words", word, static_cast<std::int64_t>(values.size()), model_.machine().controller_words());
        const auto lock = take();
        std::copy(values.data(), values.data() + values.size(), model_.controller_memory().data() + word);
    }

    nb::object cmem_read(std::int64_t word, std::int64_t count) {
        check_range("controller memory words", word, count, model_.machine().controller_words());
        const auto lock = take();
        return numpy_copy(model_.controller_memory().data() + word, static_cast<std::size_t>(count));
    }

    std::uint64_t map_host(const nb::object& object) {
        auto buffer = std::make_unique<PythonBuffer>(object);
        const auto lock = take();
        const std::uint64_t address = model_.windows().map(buffer->bytes(), buffer->writable());
        mapped_.emplace(address, std::move(buffer));
        return address;
    }

    void unmap_host(std::uint64_t address) {
        decltype(mapped_)::node_type closed;  // let go after the lock: that may run any code of the buffer's owner
        const auto lock = take();
        if (!model_.windows().unmap(address)) {
            throw wordline::Error("bad-range", "no host window is open at " + wordline::hexadecimal(address));
        }
        closed = mapped_.extract(address);
    }

    nb::object execute(std::int64_t slot, std::int64_t argument_base, std::optional<std::uint64_t> instruction_limit) {
        std::optional<wordline::Fault> fault;
        const auto lock = take();
        const wordline::Program& program = programs_.get(static_cast<std::size_t>(slot));
        run_without_gil([&] {
            try {
                model_.execute(program, argument_base, instruction_limit.value_or(wordline::no_instruction_limit));
            } catch (const wordline::Fault& thrown) {
                fault = thrown;
            }
        });
        if (fault) {
            raise_fault(*fault);
        }
        return numpy_copy(model_.shared_registers().data(), model_.shared_registers().size());
    }

    std::uint32_t read_stream(std::int64_t first_row, std::int64_t rows) {
        check_rows(first_row, rows);
        const nb::gil_scoped_release release;
        const std::lock_guard lock(mutex_);
        return model_.read_stream(static_cast<std::int32_t>(first_row), static_cast<std::int32_t>(rows));
    }

    wordline::FunctionalModel& model() { return model_; }

private:
    // Every call takes the model for itself, so that threads may share it.
    std::unique_lock<std::mutex> take() { return take_without_gil(mutex_); }

    void check_rows(std::int64_t first, std::int64_t rows) const { check_range("rows", first, rows, model_.machine().organisation.rows); }

    wordline::FunctionalModel model_;
    wordline::ProgramStore programs_;
    std::map<std::uint64_t, std::unique_ptr<PythonBuffer>> mapped_;
    std::mutex mutex_;
};

}  // namespace

void bind_functional(nb::module_& m) {
    nb::class_<PyFunctionalModel>(m, "FunctionalModel",
                                  "Computes every value of device programs bit-exactly, without time. `machine` is Machine.flat(); threads and simd default to "
                                  "the knobs. The same methods as wordline.sim.reference.ReferenceDevice.")
        .def(nb::init<const nb::dict&, std::optional<int>, const std::optional<std::string>&>(), nb::arg("machine"), nb::arg("threads") = nb::none(),
             nb::arg("simd") = nb::none())
        .def("load_program", &PyFunctionalModel::load_program, nb::arg("image"), "Check a program image and return its slot.")
        .def("unload_program", &PyFunctionalModel::unload_program, nb::arg("slot"))
        .def("bank_write", &PyFunctionalModel::bank_write, nb::arg("first_row"), nb::arg("rows"), nb::arg("data"),
             "Write rows of all banks of all channels: uint16 [row][channel][bank][column][lane].")
        .def("bank_read", &PyFunctionalModel::bank_read, nb::arg("first_row"), nb::arg("rows"))
        .def("bank_fill_zero", &PyFunctionalModel::bank_fill_zero, nb::arg("first_row"), nb::arg("rows"), nb::arg("channel_mask"))
        .def("cmem_write", &PyFunctionalModel::cmem_write, nb::arg("word"), nb::arg("values"))
        .def("cmem_read", &PyFunctionalModel::cmem_read, nb::arg("word"), nb::arg("count"))
        .def(
            "scratch",
            [](PyFunctionalModel& self) {
                auto& scratch = self.model().scratch();
                return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(scratch.data(), {scratch.size()}, nb::find(self));
            },
            nb::rv_policy::reference_internal, "All scratch, uint8 [channels * bytes_per_channel], as a view.")
        .def("map_host", &PyFunctionalModel::map_host, nb::arg("buffer"), "Open a window of host memory to the device; returns its address.")
        .def("unmap_host", &PyFunctionalModel::unmap_host, nb::arg("address"))
        .def("execute", &PyFunctionalModel::execute, nb::arg("slot"), nb::arg("argument_base") = 0, nb::arg("instruction_limit") = nb::none(),
             "Run a loaded program to its end; returns the shared registers (int32). Raises wordline.sim.fault.Fault. The GIL is released.")
        .def("read_stream", &PyFunctionalModel::read_stream, nb::arg("first_row"), nb::arg("rows"),
             "Read rows of all channels with all threads, as fast as memory allows; returns a checksum.")
        .def_prop_ro("threads", [](PyFunctionalModel& self) { return self.model().threads(); });
}
