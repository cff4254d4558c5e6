// Our own stack for each thread, on which our handlers run whatever alternate stack the program has: the program's may be a
// few KiB, and it belongs to the program's handlers.
#pragma once
#include <ucontext.h>
#include <csignal>
#include <cstddef>
#include <cstdint>

namespace pytracer::crashsafe {

/// Size of each: measured use is below a quarter of it.
inline constexpr size_t kOwnStackBytes = 128 << 10;

/// The end of the calling thread's own stack; 0: it has none, and handlers run where the kernel puts them.
extern "C" constinit thread_local uint64_t pytracer_own_stack __attribute__((tls_model("initial-exec"), visibility("hidden")));

/// Calls function(a, b, c) on the own stack; on the current one when that is it, or when there is none.
extern "C" __attribute__((visibility("hidden"))) void pytracer_on_own_stack(long a, void* b, void* c, void (*function)(long, void*, void*)) noexcept;

/// Calls function(0, argument, nullptr) there with all signals blocked but those of faults, which checked reads need: from code of the
/// program's, whose own stack may be a small one.
void run_undisturbed(void* argument, void (*function)(long, void*, void*)) noexcept;

inline bool on_own_stack(uint64_t sp) noexcept {
  return pytracer_own_stack != 0 && sp <= pytracer_own_stack && pytracer_own_stack - sp < kOwnStackBytes;
}

/// The own stack as sigaltstack(2) has it; only where there is one. Whether a kernel's answer is that.
stack_t own_stack() noexcept;
bool is_own_stack(const stack_t& stack) noexcept;

/// Makes the own stack the kernel's alternate stack until our handler returns: the frame of a fault inside it must not overwrite the top
/// of the program's alternate stack, where the signal's frame is. rt_sigreturn restores the one in `context`.
void borrow_alternate_stack(const ucontext_t* context) noexcept;

/// Entry points for the kernel, which run the named functions on the own stack.
#define PYTRACER_HANDLER_ENTRY(entry) extern "C" __attribute__((visibility("hidden"))) void entry(int, siginfo_t*, void*)
PYTRACER_HANDLER_ENTRY(pytracer_enter_fault);
PYTRACER_HANDLER_ENTRY(pytracer_enter_request);
PYTRACER_HANDLER_ENTRY(pytracer_enter_asked);
#undef PYTRACER_HANDLER_ENTRY

}  // namespace pytracer::crashsafe
