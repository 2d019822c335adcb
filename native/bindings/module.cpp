#include "bindings.hpp"

NB_MODULE(_native, m) {
    m.doc() = "Native core of wordline.";
    bind_build_info(m);
}
