// A stack of ours for each thread, on which its signals are handled: without one, a stack overflow leaves no report.
#pragma once
#include <csignal>
#include <cstddef>

namespace pytracer::recorder {

/// A stack that an ended thread left, or a new one; null when there is no memory. The first usable bytes may carry a message
/// to the new thread.
void* take_stack() noexcept;
void* stack_bytes(void* stack) noexcept;
void give_stack(void* stack) noexcept;

/// Makes it the stack on which our handlers run on the calling thread until it has run its other destructors, and its alternate
/// stack when it has none. Notes where the thread's own stack lies.
void adopt_stack(void* stack) noexcept;

/// Gives the calling thread such a stack until it ends, unless it has one. Allocates: not from a signal handler.
void arm_this_thread() noexcept;

/// sigaltstack(2) of the program: the kernel has the program's stack, and ours where the program has none.
int set_alternate_stack(const stack_t* stack, stack_t* old) noexcept;

/// Takes our stack away from the calling thread, unless a handler runs on it.
void disarm_this_thread() noexcept;

}  // namespace pytracer::recorder
