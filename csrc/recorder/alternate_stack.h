// Alternate signal stacks with a guard page, one per thread: without one, a stack overflow leaves no report.
#pragma once
#include <csignal>
#include <cstddef>

namespace pytracer::recorder {

/// A stack that an ended thread left, or a new one; null when there is no memory. The first usable bytes may carry a message
/// to the new thread.
void* take_stack() noexcept;
void* stack_bytes(void* stack) noexcept;
void give_stack(void* stack) noexcept;

/// Makes it the calling thread's alternate stack until the thread has run its other destructors; gives it back at once when a
/// larger one is in place. Notes where the thread's own stack lies.
void adopt_stack(void* stack) noexcept;

/// Gives the calling thread an alternate stack of ours until it ends, unless it has one. Allocates: not from a signal handler.
void arm_this_thread() noexcept;

/// True on threads whose alternate stack is ours.
bool has_our_stack() noexcept;

/// What the program believes its alternate stack is, on threads where ours stays in place.
stack_t& believed_stack() noexcept;

}  // namespace pytracer::recorder
