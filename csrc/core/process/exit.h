// How processes end: this one, by exit(), and its children.
#pragma once

struct rusage;

namespace pytracer::core {

/// exit() or, `at_once`, _exit() was called.
void note_exit(int code, bool at_once) noexcept;

/// A collective has failed or timed out on this thread: the stacks of all Python threads, and this one's native stack.
void write_failure_stacks() noexcept;

/// A child of this process was reaped. `usage`: its resource usage, or null when the call returned none.
void note_wait(int pid, int status, int code, bool via_waitid, const struct rusage* usage) noexcept;

}  // namespace pytracer::core
