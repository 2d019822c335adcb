// A fixed crew of threads that runs one job at a time, each worker with its number.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace wordline {

class Workers {
public:
    explicit Workers(int count);  // the calling thread is worker 0
    ~Workers();
    Workers(const Workers&) = delete;
    Workers& operator=(const Workers&) = delete;

    int count() const { return static_cast<int>(threads_.size()) + 1; }
    // job(worker) on every worker; returns when all have returned. The job may not throw. Every worker computes with IEEE semantics: rounding to
    // nearest, subnormals kept, whatever the caller's thread was set to.
    void run(const std::function<void(int)>& job);

private:
    void serve(int worker);

    std::mutex mutex_;
    std::condition_variable start_, done_;
    const std::function<void(int)>* job_ = nullptr;
    std::uint64_t round_ = 0;
    int running_ = 0;
    bool stop_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace wordline
