// The signal handler: recovers from faults of our own, and acts on those of the program as decision.h decides. Entered by
// pytracer_enter_fault (unwind/own_stack.h).
#pragma once
#include <ucontext.h>
#include <csignal>

namespace pytracer::crashsafe {

/// Writes the stacks of this thread, which ends the process, outside a signal handler. `context`: where that is done; only its
/// callers are shown. Nothing is written when something crashed before, or another thread reports.
void write_exit(ucontext_t* context) noexcept;

/// The same for a process that a signal from outside is about to end: its stacks at that moment. `context`: what the signal
/// interrupted. On one of our stacks.
void write_stop(ucontext_t* context) noexcept;

/// The same for a process that handles the signal and goes on: a later crash or end replaces them.
void write_handled(int signal, siginfo_t* info, ucontext_t* context) noexcept;

/// As write_exit(), in a process that goes on.
void write_here(ucontext_t* context) noexcept;

/// In a forked child: no thread reports or dies.
void forget_reports() noexcept;

}  // namespace pytracer::crashsafe
