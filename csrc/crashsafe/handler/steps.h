// The steps of a report: each runs under a time limit, and a fault inside one continues with the next.
#pragma once
#include "blackbox/layout.h"
#include "crashsafe/platform/sys.h"

#include <ucontext.h>
#include <cstdint>

namespace pytracer::crashsafe {

/// The autograd node running on this thread. Filled by the torch half; called in the handler, so it may only read.
struct NodeProbe {
  const char* name;  ///< mangled class name, or tp_name of a Python class; may be unreadable memory
  int64_t sequence_nr;
  bool is_python;
  const void* node;  ///< its address
};
using NodeProbeFn = bool (*)(NodeProbe*);
void set_node_probe(NodeProbeFn probe) noexcept;

/// Runs the steps from `first` to `last` on the crashed thread. The crash header records which were done, which faulted and which took
/// too long. `like` carries libc's restorer.
void run_steps(blackbox::Step first, blackbox::Step last, ucontext_t* context, const KernelAction& like) noexcept;

/// Handler side of a fault on the reporting thread: when a step runs, moves the context to the innermost place that
/// recovers. False: no step runs.
bool recover_step(ucontext_t* context) noexcept;

/// Runs `work(argument)` inside a step; false when a fault ended it. For parts that may fail alone.
bool run_guarded(void (*work)(void*), void* argument) noexcept;

/// Lets the interrupted code continue at a __builtin_setjmp.
void resume_at(void* const (&buffer)[5], ucontext_t* context) noexcept;

/// For tests: a fault at the beginning of that step. -1: none.
void break_step(int step) noexcept;

}  // namespace pytracer::crashsafe
