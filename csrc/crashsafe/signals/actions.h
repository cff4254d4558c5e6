// The actions that the program believes are installed for the signals that we handle.
#pragma once
#include "crashsafe/platform/sys.h"
#include "crashsafe/signals/decision.h"

#include <csignal>

namespace pytracer::crashsafe {

/// The signals that have an action here. Any other one would share its place with all others that have none.
inline constexpr int kWithAction[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL,  SIGFPE,  SIGTRAP,   SIGSYS, SIGTERM,
                                      SIGINT,  SIGHUP, SIGQUIT, SIGXCPU, SIGALRM, SIGVTALRM, SIGPROF};

template <size_t kCount>
constexpr bool have_actions(const int (&signals)[kCount]) {
  for (int signal : signals)
    if (!is_among(kWithAction, signal)) return false;
  return true;
}

/// The program's action for one signal. Safe in a handler: a reader never sees half of a change.
struct sigaction action_of(int signal) noexcept;
Disposition disposition_of(const struct sigaction& action) noexcept;

/// `act` replaces it, and `old` becomes the previous one. For the interposed sigaction; makes no system call. Any thread, also in a
/// handler that interrupted this.
void exchange_action(int signal, const struct sigaction& act, struct sigaction* old) noexcept;

/// SA_RESETHAND: the default action from now on, unless another thread has replaced the one that is being delivered.
void reset_action(int signal, const struct sigaction& delivered) noexcept;

}  // namespace pytracer::crashsafe
