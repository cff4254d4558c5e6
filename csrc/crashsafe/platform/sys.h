// System calls without libc's wrappers where the wrapper does more than the call.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace pytracer::crashsafe {

/// As the kernel wants it; libc's struct sigaction differs.
struct KernelAction {
  void* handler;
  unsigned long flags;
  void* restorer;
  uint64_t mask;
};

inline constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP, SIGSYS};

template <size_t kCount>
constexpr bool is_among(const int (&signals)[kCount], int signal) {
  for (int s : signals)
    if (s == signal) return true;
  return false;
}
inline bool is_ours(int signal) { return is_among(kSignals, signal); }
inline uint64_t bit_of(int signal) { return 1ull << (signal - 1); }
inline uint64_t our_signals() {
  uint64_t mask = 0;
  for (int s : kSignals) mask |= bit_of(s);
  return mask;
}
inline uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}
inline int sys_gettid() { return static_cast<int>(syscall(SYS_gettid)); }
inline int sys_getpid() { return static_cast<int>(syscall(SYS_getpid)); }
inline long sys_mask(int how, const uint64_t* set, uint64_t* old) { return syscall(SYS_rt_sigprocmask, how, set, old, sizeof(uint64_t)); }
inline long sys_action(int signal, const KernelAction* action, KernelAction* old) {
  return syscall(SYS_rt_sigaction, signal, action, old, sizeof(uint64_t));
}

}  // namespace pytracer::crashsafe
