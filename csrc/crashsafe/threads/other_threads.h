// Stacks of the threads that did not crash. The launcher's helper stops them by ptrace while the crashed thread walks; where
// there is none, or it may not, a real-time signal lets each thread walk its own.
#pragma once
#include "crashsafe/platform/sys.h"

#include <ucontext.h>

namespace pytracer::crashsafe {

/// Crash step. `like` carries libc's restorer.
void write_other_threads(const KernelAction& like) noexcept;

/// Handler side of a fault on a thread that walks its own stack for the report: ends its walk. False: it does not walk.
bool recover_walk(int tid, ucontext_t* context) noexcept;

}  // namespace pytracer::crashsafe
