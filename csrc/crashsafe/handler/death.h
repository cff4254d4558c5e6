// A signal that ends the process: its report, and how the signal is raised again.
#pragma once
#include <ucontext.h>
#include <csignal>

namespace pytracer::crashsafe {

/// Reports the death, and ends the process when our handler returns.
void die(int tid, int signal, siginfo_t* info, ucontext_t* context) noexcept;

/// The same signal again, under the default action, when our handler returns.
void requeue_default(int signal, siginfo_t* info) noexcept;

/// Stacks of the other threads, which stay stopped: the process is certain to die. Announces the crash.
void take_other_threads(int signal, ucontext_t* context) noexcept;

}  // namespace pytracer::crashsafe
