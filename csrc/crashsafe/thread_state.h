// What the handler cannot ask when the calling thread has crashed: the recorder notes it before.
#pragma once
#include "sys.h"

#include <ucontext.h>
#include <csignal>
#include <cstdint>

namespace pytracer::crashsafe {

/// Those of our signals that an instruction may raise. Not SIGABRT: abort() unblocks it by itself.
inline constexpr uint64_t kFaultSignals = [] {
  uint64_t mask = 0;
  for (int signal : kSignals)
    if (signal != SIGABRT) mask |= 1ull << (signal - 1);
  return mask;
}();

/// What the calling thread believes blocked, of kFaultSignals, while it is not: the kernel ends a process at once, without any
/// handler, when a thread faults whose mask blocks the signal of its fault. Kept by the interposed pthread_sigmask.
extern constinit thread_local uint64_t t_believed_blocked __attribute__((tls_model("initial-exec")));

/// The calling thread's own stack. high 0: not known; low 0: it grows down to what RLIMIT_STACK allows (the main thread's).
struct StackBounds {
  uint64_t low, high;
};
extern constinit thread_local StackBounds t_stack_bounds __attribute__((tls_model("initial-exec")));

/// Lowest usable address and end of that stack as of now; 0: not known, or without limit.
StackBounds stack_bounds() noexcept;

/// A signal that was sent to a thread which believes it blocked: blocks it there in truth and sends it again, so that it is
/// pending, as without us. False when it is to be delivered.
bool hold_back(int signal, siginfo_t* info, ucontext_t* context) noexcept;

}  // namespace pytracer::crashsafe
