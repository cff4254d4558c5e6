#include "crashsafe/platform/deadline.h"

namespace pytracer::crashsafe {
namespace {

// A real-time signal near the top, which libraries leave alone; its action is restored afterwards.
constexpr int kSignal = 62;
constexpr unsigned long kSiginfo = 4, kOnStack = 0x08000000, kRestorer = 0x04000000;

int timer = -1;
KernelAction before{};

}  // namespace

void start_deadlines(void (*expired)(int, siginfo_t*, void*), const KernelAction& like) noexcept {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kSignal;
  event._sigev_un._tid = sys_gettid();
  KernelAction action{reinterpret_cast<void*>(expired), kSiginfo | kOnStack | (like.flags & kRestorer), like.restorer, 0};
  if (sys_action(kSignal, &action, &before) != 0) return;
  if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) != 0) {
    timer = -1;
    sys_action(kSignal, &before, nullptr);
    return;
  }
  uint64_t bit = bit_of(kSignal);
  sys_mask(SIG_UNBLOCK, &bit, nullptr);
}

void set_deadline(uint64_t ns) noexcept {
  if (timer < 0) return;
  itimerspec limit{};
  limit.it_value = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  syscall(SYS_timer_settime, timer, 0, &limit, nullptr);
}

void stop_deadlines() noexcept {
  if (timer < 0) return;
  syscall(SYS_timer_delete, timer);
  timer = -1;
  sys_action(kSignal, &before, nullptr);
}

}  // namespace pytracer::crashsafe
