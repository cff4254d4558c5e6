// The bounds of a thread's own stack. The handler cannot query them when the thread has crashed: the core notes them before.
#pragma once
#include "crashsafe/platform/sys.h"

#include <ucontext.h>
#include <csignal>
#include <cstdint>

namespace pytracer::crashsafe {

/// The calling thread's own stack. high 0: not known; low 0: it grows down to what RLIMIT_STACK allows (the main thread's).
struct StackBounds {
  uint64_t low, high;
};
extern constinit thread_local StackBounds t_stack_bounds __attribute__((tls_model("initial-exec")));

/// Lowest usable address and end of that stack as of now; 0: not known, or without limit.
StackBounds stack_bounds() noexcept;

}  // namespace pytracer::crashsafe
