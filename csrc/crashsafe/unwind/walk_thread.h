// A walk of another thread's stack in our own address space: libgcc is led to that thread's registers by a signal frame
// that no signal made.
#pragma once
#include "crashsafe/platform/sys.h"
#include "crashsafe/unwind/native_stack.h"

namespace pytracer::crashsafe {

/// Walks from `registers` (as CrashHeader.registers; the thread must be stopped). `like` carries libc's restorer, whose
/// call-frame information leads the unwinder across the frame. True when the walk came to the thread's first function.
/// Not reentrant. May fault on a damaged stack.
bool walk_as(const uint64_t (&registers)[34], const KernelAction& like, FrameFn visit, void* argument) noexcept;

}  // namespace pytracer::crashsafe
