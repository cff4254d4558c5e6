// Stacks of the threads that did not crash. The launcher's helper stops them by ptrace while the crashed thread walks; where
// there is none, or it may not, a real-time signal lets each thread walk its own.
#pragma once
#include "doorbell.h"
#include "sys.h"

#include <ucontext.h>

namespace pytracer::crashsafe {

/// The bell of this run's launcher, or null; `box_name` is the file name of this process's box. Both must outlive the
/// handlers.
void set_doorbell(Doorbell* bell, const char* box_name) noexcept;

/// Crash step. `like` carries libc's restorer.
void write_other_threads(const KernelAction& like) noexcept;

/// Handler side of a fault on a thread that walks its own stack for the report: ends its walk. False: it does not walk.
bool recover_walk(int tid, ucontext_t* context) noexcept;

}  // namespace pytracer::crashsafe
