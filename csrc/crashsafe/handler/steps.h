// The step machine: each numbered step of a report runs under a time limit, and a fault inside one goes on with the next.
#pragma once
#include "blackbox/layout.h"
#include "crashsafe/handler/handler.h"
#include "crashsafe/platform/sys.h"

#include <ucontext.h>

namespace pytracer::crashsafe {

/// Runs the steps from `first` to `last` on the crashed thread, unless one was given up for good. The crash header says
/// which were done, which met a fault and which took too long. `like` carries libc's restorer.
void run_steps(blackbox::Step first, blackbox::Step last, ucontext_t* context, const KernelAction& like) noexcept;

/// Handler side of a fault on the reporting thread: when a step runs, moves the context to the innermost place that
/// recovers. False: no step runs.
bool recover_step(ucontext_t* context) noexcept;

/// Runs `work(argument)` inside a step; false when a fault ended it. For parts that may fail alone.
bool run_guarded(void (*work)(void*), void* argument) noexcept;

/// Lets the interrupted code continue at a __builtin_setjmp.
void resume_at(void* const (&buffer)[5], ucontext_t* context) noexcept;

/// For tests: a fault at the beginning of that step. -1: none.
void break_step(int step) noexcept;

}  // namespace pytracer::crashsafe
