// Signals that ask a process to end: their senders are recorded. Under preload only, where the program's own handlers are known. So are
// those of timers, as long as the program has no handler for them.
#pragma once
#include <csignal>

namespace pytracer::core {

/// In a forked child: no thread is ending the process.
void forget_ending() noexcept;

/// SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU; SIGALRM, SIGVTALRM, SIGPROF.
bool asks_to_end(int signal) noexcept;

/// Records each of them from now on. The program's actions remain in effect.
void watch_sent_signals() noexcept;

/// Restores the actions, unless others were installed since.
void unwatch_sent_signals() noexcept;

/// The program's sigaction for one of them: kept, while the kernel gets our function.
int set_sent_action(int signal, const struct sigaction* act, struct sigaction* old) noexcept;

/// Whether the program's handler of one of them runs on this thread.
bool in_sent_handler() noexcept;

}  // namespace pytracer::core
