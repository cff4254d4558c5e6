// A limit on how long a step of the handler may take: a kernel timer that signals the reporting thread itself.
#pragma once
#include "crashsafe/platform/sys.h"

#include <csignal>
#include <cstdint>

namespace pytracer::crashsafe {

/// Makes the timer and installs `expired` for its signal on this thread; `like` carries libc's restorer. Where timers are
/// refused (seccomp) nothing is armed: steps then have no limit.
void start_deadlines(void (*expired)(int, siginfo_t*, void*), const KernelAction& like) noexcept;

/// From now on, once. 0 stops the clock.
void set_deadline(uint64_t ns) noexcept;

/// Deletes the timer and restores its signal's action.
void stop_deadlines() noexcept;

}  // namespace pytracer::crashsafe
