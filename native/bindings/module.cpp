#include "bindings.hpp"

NB_MODULE(_native, m) {
    m.doc() = "Native core of wordline.";
    nb::set_leak_warnings(false);  // the command line ends without collecting garbage, on purpose
    bind_errors(m);
    bind_build_info(m);
    bind_functional(m);
    bind_explanation(m);
    bind_timing(m);
    bind_trace(m);
    bind_sim_device(m);
}
