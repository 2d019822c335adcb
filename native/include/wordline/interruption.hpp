// Lets the program around the native core end work that takes long: a device program need not end by itself.
#pragma once

#include <functional>
#include <utility>

namespace wordline {

// Ends interrupted work. Not a std::exception: it is no error of the work, and handlers of such must let it through.
struct Interrupted {};

// While it lives, long work on this thread asks `wanted` every now and then (some 20 ms apart) whether to end.
class InterruptionScope {
public:
    explicit InterruptionScope(std::function<bool()> wanted);
    ~InterruptionScope();
    InterruptionScope(const InterruptionScope&) = delete;
    InterruptionScope& operator=(const InterruptionScope&) = delete;

private:
    std::function<bool()> wanted_;
    const std::function<bool()>* outer_;
};

// Long work calls this at least every few milliseconds. Throws Interrupted when the innermost scope of this thread wants the work to end.
void interruption_point();

}  // namespace wordline
