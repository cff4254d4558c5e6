// Alternate signal stacks with a guard page, one per thread: without one, a stack overflow leaves no report.
#pragma once
#include <csignal>
#include <cstddef>

namespace pytracer::recorder {

/// Maps a stack; null when there is no memory. The first usable bytes may carry a message to the new thread.
void* map_stack() noexcept;
void* stack_bytes(void* stack) noexcept;
void unmap_stack(void* stack) noexcept;

/// Makes it the calling thread's alternate stack until the thread has run its other destructors; unmaps it at once when a larger
/// one is in place.
void adopt_stack(void* stack) noexcept;

/// True on threads whose alternate stack is ours.
bool has_our_stack() noexcept;

/// What the program believes its alternate stack is, on threads where ours stays in place.
stack_t& believed_stack() noexcept;

}  // namespace pytracer::recorder
