// Walks another thread's stack in our own address space: libgcc reaches that thread's registers by a synthetic signal frame.
#pragma once
#include "crashsafe/platform/sys.h"
#include "crashsafe/unwind/native_stack.h"

namespace pytracer::crashsafe {

/// Walks from `registers` (as CrashHeader.registers; the thread must be stopped). `like` carries libc's restorer, whose
/// call-frame information takes the unwinder across the frame. True when the walk reached the thread's first function.
/// Not reentrant. May fault on a damaged stack.
bool walk_thread(const uint64_t (&registers)[34], const KernelAction& like, FrameFn visit, void* argument) noexcept;

}  // namespace pytracer::crashsafe
