// The signal handler: what is written while the process dies, in which order, and how the signal goes on.
#pragma once
#include "crashsafe/platform/sys.h"

#include <ucontext.h>
#include <csignal>
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

/// Installs the handlers for kSignals through libc's own `sigaction` (its restorer carries call-frame information, which
/// unwinders need) and remembers the previous ones. `announce`: the run directory to name on stderr after a crash, or null
/// to stay silent; must outlive the handlers.
void install_handlers(int (*libc_sigaction)(int, const struct sigaction*, struct sigaction*), const char* announce) noexcept;

/// Gives every signal back, unless somebody else took it since.
void uninstall_handlers() noexcept;

/// True between install and uninstall.
bool handlers_installed() noexcept;

/// The program ends by exit(): a signal that was reported, and that its own handler then dealt with, was no death.
void note_normal_exit() noexcept;

/// Writes the stacks of this thread, which ends the process, outside a signal handler. `context`: where that is done; only
/// what called it is shown. Nothing is written when something crashed before, or another thread reports.
void write_exit(ucontext_t* context) noexcept;

void set_node_probe(NodeProbeFn probe) noexcept;

/// What the kernel gets for one of our signals when the program installs `program`: our handler, but for one that is ignored,
/// which stays so over exec.
struct sigaction handler_for(int signal, const struct sigaction& program) noexcept;

/// An action of the kernel's for the request signal that is ours.
bool is_request_handler(const struct sigaction& action) noexcept;

/// The calling thread got a fault that its handler may still be busy with: crashsafe::kInHandler in its mask is ours.
bool may_be_in_handler() noexcept;

/// In a forked child: no thread reports or dies.
void forget_reports() noexcept;

}  // namespace pytracer::crashsafe
