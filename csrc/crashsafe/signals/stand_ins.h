// Blocked faults, under preload. The kernel ends a process at once, without any handler, when a thread faults whose mask blocks
// the signal of its fault. So these signals are never really blocked; a stand-in is, a real-time signal for each of them.
//
// The thread's own mask thereby holds what the program believes is blocked, and everything that saves and restores masks preserves it:
// siglongjmp, setcontext, the return from a handler, fork, exec, new threads.
#pragma once
#include "crashsafe/platform/sys.h"

#include <ucontext.h>
#include <csignal>
#include <cstdint>

namespace pytracer::crashsafe {

/// Those of our signals that an instruction may raise. Not SIGABRT: abort() unblocks it by itself.
inline constexpr int kFaults[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS};
inline constexpr int kFirstStandIn = 52;  // to 57: libraries take real-time signals from either end

inline constexpr uint64_t kFaultSignals = [] {
  uint64_t mask = 0;
  for (int signal : kFaults) mask |= 1ull << (signal - 1);
  return mask;
}();
inline constexpr uint64_t kStandIns = 0x3full << (kFirstStandIn - 1);

/// Blocked on a thread while it runs a program's handler for a fault that we delivered.
inline constexpr uint64_t kInHandler = 1ull << 63;

/// Signals of kFaultSignals that are hidden now: none before preload's start; not one that the program ignores, and not one
/// whose stand-in the program uses itself.
uint64_t hidden_faults() noexcept;
void hide_faults(uint64_t hidden) noexcept;

/// A set as the program gives it, to the mask that the kernel gets.
uint64_t to_kernel(uint64_t set) noexcept;

/// A mask of the kernel's, as the program sees it.
uint64_t from_kernel(uint64_t mask) noexcept;

/// The faults whose stand-ins are blocked in a mask of the kernel.
uint64_t believed_blocked(uint64_t mask) noexcept;

/// The stand-ins of these faults.
uint64_t stand_ins_of(uint64_t faults) noexcept;

/// Defers a signal that was sent to a thread which believes it is blocked: really blocks it there and sends it again, so that it is
/// pending, as untraced. False when that is refused.
bool defer_signal(int signal, siginfo_t* info, ucontext_t* context) noexcept;

}  // namespace pytracer::crashsafe
