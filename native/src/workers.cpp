#include "wordline/workers.hpp"

#include <cfenv>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace wordline {
namespace {

class IeeeArithmetic {
public:
    IeeeArithmetic() {
        std::fegetenv(&saved_);
        std::fesetenv(FE_DFL_ENV);
#if defined(__SSE2__)
        control_ = _mm_getcsr();
        _mm_setcsr(0x1F80);  // all exceptions masked, round to nearest, neither FTZ nor DAZ
#endif
    }
    ~IeeeArithmetic() {
#if defined(__SSE2__)
        _mm_setcsr(control_);
#endif
        std::fesetenv(&saved_);
    }
    IeeeArithmetic(const IeeeArithmetic&) = delete;
    IeeeArithmetic& operator=(const IeeeArithmetic&) = delete;

private:
    std::fenv_t saved_;
#if defined(__SSE2__)
    unsigned control_;
#endif
};

}  // namespace

Workers::Workers(int count) {
    for (int worker = 1; worker < count; ++worker) {
        threads_.emplace_back([this, worker] { serve(worker); });
    }
}

Workers::~Workers() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    start_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

void Workers::run(const std::function<void(int)>& job) {
    if (!threads_.empty()) {
        const std::lock_guard lock(mutex_);
        job_ = &job;
        running_ = static_cast<int>(threads_.size());
        ++round_;
        start_.notify_all();
    }
    {
        const IeeeArithmetic arithmetic;
        job(0);
    }
    if (!threads_.empty()) {
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return running_ == 0; });
    }
}

void Workers::serve(int worker) {
    const IeeeArithmetic arithmetic;
    std::uint64_t seen = 0;
    for (;;) {
        const std::function<void(int)>* job = nullptr;
        {
            std::unique_lock lock(mutex_);
            start_.wait(lock, [&] { return stop_ || round_ != seen; });
            if (stop_) {
                return;
            }
            seen = round_;
            job = job_;
        }
        (*job)(worker);
        {
            const std::lock_guard lock(mutex_);
            --running_;
        }
        done_.notify_one();
    }
}

}  // namespace wordline
