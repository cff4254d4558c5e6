// Once a process is sure to die, no other thread may continue: it could exit normally, and a crash would be exit status 0.
#pragma once

namespace pytracer::crashsafe {

/// The process dies of a signal that this thread got.
void begin_dying(int tid) noexcept;
bool dying() noexcept;

/// A thread that would end the process, or continue, while another one dies: waits until the process is gone, within bounds.
/// Returns at once while no thread dies, and on the dying thread.
void wait_while_dying() noexcept;

/// Handler side: the same for a thread whose stack has been taken.
void wait_until_gone() noexcept;

/// In a forked child: no thread dies.
void forget_dying() noexcept;

}  // namespace pytracer::crashsafe
