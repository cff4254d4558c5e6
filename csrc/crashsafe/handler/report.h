// The report in the black box: which thread may write it, how it begins and ends, and the lines beside it.
#pragma once
#include "blackbox/layout.h"

#include <ucontext.h>
#include <csignal>

namespace pytracer::crashsafe {

/// The thread that writes the report; 0: none.
int reporter() noexcept;

/// Becomes the reporter when there is none; waits for nothing.
bool claim_at_once() noexcept;

/// Becomes the reporter. Waits for another one as long as a report may take, and leaves a line about this signal first; false after that.
bool claim(int tid, int signal, const siginfo_t* info, const ucontext_t* context) noexcept;

/// The reporter is done.
void release_claim() noexcept;

/// In a forked child: no thread reports.
void forget_claim() noexcept;

/// A thread that crashes while the report is another thread's leaves a small record.
void leave_line(int signal, const siginfo_t* info, const ucontext_t* context) noexcept;

/// Empties the report and writes what is certain: the signal, registers, this thread. Faults are recoverable afterwards.
void begin_report(int signal, const siginfo_t* info, const ucontext_t* context, blackbox::CrashState state) noexcept;

/// The whole report of a crash, except for the other threads.
void report(int signal, siginfo_t* info, ucontext_t* context) noexcept;

/// State of the report, and of the process.
void set_state(blackbox::CrashState state) noexcept;
bool has_state(blackbox::CrashState state) noexcept;
void set_process_state(blackbox::State state) noexcept;

/// The line on stderr that names the black box, when install_handlers() asked for one.
void announce_crash() noexcept;

}  // namespace pytracer::crashsafe
