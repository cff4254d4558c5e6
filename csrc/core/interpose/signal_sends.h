// Signals that this process sends to others, and SIGKILL to itself: its victim cannot record who sent it, so the sender does.
#pragma once

namespace pytracer::core {

/// The functions behind ours, before a signal handler or a vfork child calls them.
void resolve_signal_sends() noexcept;

/// In a forked child: it has sent nothing yet, and the stacks that were written are its parent's.
void forget_sends() noexcept;

/// pidfd_send_signal(2), for which older C libraries have no function: `call` makes the system call.
long send_by_descriptor(int descriptor, int signal, unsigned flags, const void* caller, long (*call)(const void*), const void* argument) noexcept;

}  // namespace pytracer::core
