// What the program believes is installed for the signals that we handle.
#pragma once
#include "decision.h"
#include "sys.h"

#include <csignal>

namespace pytracer::crashsafe {

/// The program's action for one signal. Safe in a handler: a reader never sees half of a change.
struct sigaction action_of(int signal) noexcept;
Installed installed_of(const struct sigaction& action) noexcept;

/// The same, and `act` replaces it. For the interposed sigaction; the kernel is not asked.
void exchange_action(int signal, const struct sigaction* act, struct sigaction* old) noexcept;

}  // namespace pytracer::crashsafe
