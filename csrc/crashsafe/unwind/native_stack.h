// Native stacks by call-frame information, and the fallbacks without it. Raw addresses; the reader finds names.
#pragma once
#include <ucontext.h>
#include <unwind.h>
#include <cstdint>

namespace pytracer::crashsafe {

/// Loads what the unwinder binds lazily, so that the handler never does. Call once, outside the handler.
void warm_up_unwinder() noexcept;

/// libgcc's three functions. The core's are linked in: they need no library, and use the tables of loaded images. Those of the process's
/// own libgcc_s also use tables that were registered there.
struct Unwinder {
  _Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void*);
  _Unwind_Ptr (*ip_info)(_Unwind_Context*, int*);
  _Unwind_Word (*cfa)(_Unwind_Context*);
};

/// From now on stacks are walked by these, which are warmed up and never unloaded. `unwinder` is never freed.
void use_unwinder(const Unwinder& unwinder) noexcept;

/// How a frame was found: NativeFrame.found.
inline constexpr uint32_t kExact = 0, kUnwound = 1, kFromFramePointer = 2, kScanned = 3;

/// One frame, innermost first; `pc` already points into the call, `sp` is its stack pointer. False ends the walk.
using FrameFn = bool (*)(void* argument, uint64_t pc, uint64_t sp, uint32_t found);

/// Walks the stack of the calling thread from the frame whose program counter is `from`, below a signal frame. True when
/// the walk reached the thread's first function. libgcc may fault on a damaged stack.
bool walk_stack(uint64_t from, FrameFn visit, void* argument) noexcept;

/// Without call-frame information: frame pointers, or else a scan of the stack for return addresses, which also finds stale
/// ones. All reads are checked. Returns how frames were found, 0 when none was.
uint32_t walk_without_cfi(uint64_t frame_pointer, uint64_t stack_pointer, FrameFn visit, void* argument) noexcept;

/// Crash step: the crashed thread by call-frame information. A step of its own, since it may fault.
void write_native_stack(ucontext_t* context) noexcept;

/// Crash step: when that gave little, what walk_without_cfi finds.
void write_native_fallback(const ucontext_t* context) noexcept;

/// The stack pointer of entry `index` of NATIVE_FRAMES; 0: unknown. Entries at the end of a deep stack have none.
uint64_t stack_pointer_of_frame(uint32_t index) noexcept;

}  // namespace pytracer::crashsafe
