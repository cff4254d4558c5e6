// The dying process's side of the protocol with the launcher's helper: a socket in the run directory.
#pragma once

namespace pytracer::crashsafe {

/// The run directory, in which the launcher's helper listens at `helper.sock` if there is one; null: no request is made. Must outlive the
/// handlers.
void set_helper_directory(const char* directory) noexcept;

/// Asks and waits, within bounds, until the helper has stopped every other thread; their registers are in THREAD_STACKS
/// then. False when there is no helper or it refuses: nothing is stopped.
bool helper_stops_threads() noexcept;

/// The process dies now: the threads stay stopped until it is gone, or some seconds have passed.
void hold_until_gone() noexcept;

/// Lets the threads continue, and waits within bounds until they do.
void release_helper() noexcept;

}  // namespace pytracer::crashsafe
