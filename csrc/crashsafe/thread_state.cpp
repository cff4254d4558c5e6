#include "thread_state.h"

#include <sys/resource.h>
#include <cstring>

namespace pytracer::crashsafe {

constinit thread_local uint64_t t_believed_blocked __attribute__((tls_model("initial-exec"))) = 0;
constinit thread_local StackBounds t_stack_bounds __attribute__((tls_model("initial-exec"))) = {0, 0};

StackBounds stack_bounds() noexcept {
  StackBounds bounds = t_stack_bounds;
  uint64_t limit[2];  // soft and hard, as the kernel's struct rlimit64
  if (bounds.high == 0 || bounds.low != 0 || syscall(SYS_prlimit64, 0, RLIMIT_STACK, nullptr, limit) != 0) return bounds;
  if (limit[0] < bounds.high) bounds.low = bounds.high - (limit[0] & ~4095ull);
  return bounds;
}

bool hold_back(int signal, siginfo_t* info, ucontext_t* context) noexcept {
  uint64_t mask;
  memcpy(&mask, &context->uc_sigmask, sizeof mask);
  // Blocked there in truth, and here all the same: sigsuspend or ppoll let it through, as the program wants.
  if ((t_believed_blocked & ~mask & bit_of(signal)) == 0) return false;
  // To whom it was sent: this thread (raise, pthread_kill), else the process, which any thread's own id names; with its pid the
  // kernel refuses the siginfo of kill() to all but the main thread. Blocked here until the handler returns.
  int tid = sys_gettid();
  long error =
      info->si_code == SI_TKILL ? syscall(SYS_rt_tgsigqueueinfo, sys_getpid(), tid, signal, info) : syscall(SYS_rt_sigqueueinfo, tid, signal, info);
  if (error != 0 && syscall(SYS_tgkill, sys_getpid(), tid, signal) != 0) return false;  // refused, as by seccomp
  mask |= bit_of(signal);
  memcpy(&context->uc_sigmask, &mask, sizeof mask);
  return true;
}

}  // namespace pytracer::crashsafe
