// A signal that the program handles: it is reported first, since the program's handler may never return, and the report is corrected when
// the program turns out to live on.
#pragma once
#include "crashsafe/signals/decision.h"

#include <ucontext.h>
#include <csignal>

namespace pytracer::crashsafe {

/// Reports the signal as decision.h decides and enters the program's handler. Returns only when its frame cannot be written.
void handle_for_program(int tid, int signal, siginfo_t* info, ucontext_t* context, int error_number) noexcept;

/// Enters the program's handler without a report, for a child between vfork and exec. Returns only when its frame cannot be written.
void give_to_program(int signal, siginfo_t* info, ucontext_t* context, int error_number) noexcept;

/// The handler that got the signal of the report. `context`: where the calling thread, `tid`, is. For the reporter.
ReportedHandler reported_handler(int tid, const ucontext_t* context) noexcept;

/// The reported signal did not end the process. For the reporter.
void note_repair() noexcept;

/// The signal in whose handler the calling thread is; false: in none, or its frame has been overwritten.
bool interrupted_signal(const ucontext_t* context, siginfo_t*& info, ucontext_t*& where) noexcept;

/// A death inside a handler: the fault that the handler got was counted as repaired, and was not.
void uncount_repair() noexcept;

/// The process ends by exit(): a reported signal whose handler has returned was not a crash.
void note_normal_exit() noexcept;

/// The calling thread got a fault that its handler may still be processing: kInHandler in its mask is ours.
bool may_be_in_handler() noexcept;

/// The calling thread is in the handler that got its last fault: kInHandler stays in a mask that the program sets now.
bool runs_in_handler() noexcept;

/// In a forked child: no handler of the program runs.
void forget_handled() noexcept;

}  // namespace pytracer::crashsafe
