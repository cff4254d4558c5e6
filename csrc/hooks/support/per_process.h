// State behind a mutex that a forked child does not inherit: another thread may hold the mutex at the fork, in the middle of a change, and
// does not exist in the child.
#pragma once
#include <unistd.h>
#include <atomic>
#include <memory>
#include <mutex>

namespace pytracer::hooks {

/// A T for each process, created at the first use. An inherited one is never touched again, and not destroyed.
template <class T>
class PerProcess {
 public:
  /// Calls `use` with this process's T under the mutex. Held only for a moment; `use` may not call this again.
  template <class Use>
  auto with(Use use) {
    Held& mine = held();
    std::lock_guard lock(mine.mutex);
    return use(mine.value);
  }

 private:
  struct Held {
    pid_t pid = getpid();
    std::mutex mutex;
    T value{};
  };

  Held& held() {
    Held* seen = held_.load(std::memory_order_acquire);
    if (seen != nullptr && seen->pid == getpid()) return *seen;
    auto made = std::make_unique<Held>();
    // release: a thread that gets it sees it initialized. When another thread was first, its T is used.
    return held_.compare_exchange_strong(seen, made.get(), std::memory_order_acq_rel) ? *made.release() : *seen;
  }

  std::atomic<Held*> held_{nullptr};
};

}  // namespace pytracer::hooks
