// State behind a mutex that a forked child does not inherit: another thread may hold the mutex at the fork, in the middle of a change, and
// does not exist in the child.
#pragma once
#include <unistd.h>
#include <atomic>
#include <memory>
#include <mutex>

namespace pytracer::hooks {

/// A T for each process, made at the first use. One that was inherited is never touched again, and not destroyed.
template <class T>
class PerProcess {
 public:
  /// Calls `use` with this process's T while nobody else does. Held only for a moment; what is called may not come back here.
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
    // release: who gets it sees it made. When another thread was first, its is ours, too.
    return held_.compare_exchange_strong(seen, made.get(), std::memory_order_acq_rel) ? *made.release() : *seen;
  }

  std::atomic<Held*> held_{nullptr};
};

}  // namespace pytracer::hooks
