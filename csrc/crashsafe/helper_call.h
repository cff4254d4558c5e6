// The dying process's side of its talk with the launcher's helper, through the doorbell and its own box.
#pragma once
#include "doorbell.h"

namespace pytracer::crashsafe {

/// Rings and waits, within bounds, until the helper has stopped every other thread and put its registers into
/// THREAD_STACKS. False when nobody listens or it is refused: nothing is stopped then.
bool helper_stops_threads() noexcept;

/// Lets the threads go on, and waits within bounds until they do.
void release_helper() noexcept;

}  // namespace pytracer::crashsafe
