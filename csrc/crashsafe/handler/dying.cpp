#include "crashsafe/handler/dying.h"

#include "crashsafe/platform/sys.h"

#include <atomic>

namespace pytracer::crashsafe {
namespace {

constexpr uint64_t kMostNs = 10'000'000'000;  // a report takes at most 5 s; a process that lives after 10 will not die
std::atomic<int> dying_thread{0};

}  // namespace

void begin_dying(int tid) noexcept { dying_thread.store(tid, std::memory_order_release); }
bool dying() noexcept { return dying_thread.load(std::memory_order_acquire) != 0; }
void forget_dying() noexcept {
  if (dying_thread.load(std::memory_order_relaxed) != 0) dying_thread.store(0, std::memory_order_relaxed);
}

void wait_until_gone() noexcept {
  for (uint64_t start = now_ns(); dying() && now_ns() - start < kMostNs;) {
    timespec t{0, 50'000'000};
    syscall(SYS_nanosleep, &t, nullptr);
  }
}

void wait_while_dying() noexcept {
  int dying = dying_thread.load(std::memory_order_acquire);
  if (dying != 0 && dying != sys_gettid()) wait_until_gone();
}

}  // namespace pytracer::crashsafe
