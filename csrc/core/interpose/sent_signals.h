// Signals that ask a process to end: who sent them, noted on their way. Below preload only, where the program's own handlers
// are seen.
#pragma once
#include <csignal>

namespace pytracer::recorder {

/// SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU.
bool asks_to_end(int signal) noexcept;

/// Notes each of them from now on. What the program had installed goes on as before.
void watch_sent_signals() noexcept;

/// Gives them back, unless somebody else took them since.
void unwatch_sent_signals() noexcept;

/// The program's sigaction for one of them: remembered, and given to the kernel with our function in front.
int set_sent_action(int signal, const struct sigaction* act, struct sigaction* old) noexcept;

}  // namespace pytracer::recorder
