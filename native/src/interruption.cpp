#include "wordline/interruption.hpp"

#include <chrono>

namespace wordline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto interval = std::chrono::milliseconds(20);

thread_local const std::function<bool()>* innermost = nullptr;
thread_local Clock::time_point last_asked;

}  // namespace

InterruptionScope::InterruptionScope(std::function<bool()> wanted) : wanted_(std::move(wanted)), outer_(innermost) {
    innermost = &wanted_;
    last_asked = Clock::now();
}

InterruptionScope::~InterruptionScope() { innermost = outer_; }

void interruption_point() {
    if (innermost == nullptr) {
        return;
    }
    const Clock::time_point now = Clock::now();
    if (now - last_asked < interval) {
        return;
    }
    last_asked = now;
    if ((*innermost)()) {
        throw Interrupted{};
    }
}

}  // namespace wordline
