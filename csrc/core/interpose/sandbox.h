// Processes that confine themselves by seccomp. A filter may end a process for a system call that its author did not foresee, such as
// ours: once there is a filter, we make none.
#pragma once
#include <atomic>

namespace pytracer::core {

extern constinit std::atomic<bool> g_sandboxed;

/// This process has installed a filter. Recording has ended, its signal handlers are the program's, and no entry point of ours
/// makes a system call that the program does not make.
inline bool sandboxed() noexcept { return g_sandboxed.load(std::memory_order_relaxed); }

/// Where libc's syscall() and prctl() are, before the program can call ours.
void resolve_system_calls() noexcept;

/// This process started below more filters, `own`, than its launcher, which had `launchers` (a number, or null when it is not known): one
/// of them is the job's, and may kill it for one of our system calls. True when `own` is not known, -1; false when `launchers` is not.
bool starts_in_sandbox(const char* launchers, int own) noexcept;

}  // namespace pytracer::core
