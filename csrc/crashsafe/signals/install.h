// Our handlers in the kernel: installed and uninstalled through libc's own sigaction.
#pragma once
#include "crashsafe/platform/sys.h"

#include <csignal>

namespace pytracer::crashsafe {

/// Installs the handlers for kSignals through libc's own `sigaction` (its restorer carries call-frame information, which
/// unwinders need) and remembers the previous ones. `announce`: the run directory to name on stderr after a crash, or null
/// to stay silent; must outlive the handlers.
void install_handlers(int (*libc_sigaction)(int, const struct sigaction*, struct sigaction*), const char* announce) noexcept;

/// Restores every action, unless another one was installed since.
void uninstall_handlers() noexcept;

/// True between install and uninstall.
bool handlers_installed() noexcept;

/// The directory given to install_handlers; null: nothing is announced.
const char* announced_directory() noexcept;

/// What the kernel gets for one of our signals when the program installs `program`: our handler, unless the signal is ignored,
/// which must remain so over exec.
struct sigaction handler_for(int signal, const struct sigaction& program) noexcept;

/// Whether this is our action for the request signal.
bool is_request_handler(const struct sigaction& action) noexcept;

/// Our action as the kernel has it: flags, and the restorer of libc.
const KernelAction& installed_action(int signal) noexcept;

/// The default action for one of our signals, with libc's restorer.
KernelAction default_action(int signal) noexcept;

}  // namespace pytracer::crashsafe
