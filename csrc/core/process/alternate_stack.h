// Our own stack for each thread, on which its signals are handled: without one, a stack overflow leaves no report.
#pragma once
#include <csignal>
#include <cstddef>

namespace pytracer::core {

/// A stack that an ended thread left, or a new one; null when there is no memory. The first usable bytes may carry a message
/// to the new thread.
void* take_stack() noexcept;
void* stack_bytes(void* stack) noexcept;
void give_stack(void* stack) noexcept;

/// Our handlers run on it on the calling thread until its other destructors have run; it becomes the alternate stack when there is
/// none. Notes the bounds of the thread's own stack.
void adopt_stack(void* stack) noexcept;

/// Gives the calling thread such a stack until it ends, unless it has one. Allocates: not from a signal handler.
void arm_this_thread() noexcept;

/// sigaltstack(2) of the program: the kernel has the program's stack, and ours where the program has none.
int set_alternate_stack(const stack_t* stack, stack_t* old) noexcept;

/// Takes our stack away from the calling thread, unless a handler runs on it.
void disarm_this_thread() noexcept;

}  // namespace pytracer::core
