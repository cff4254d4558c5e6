// Collectives as c10d dispatches them: every argument, before a backend gets it.
#pragma once
#include <cstdint>

namespace pytracer::hooks {

/// The collective that is being dispatched on the calling thread. A backend's range that begins meanwhile belongs to it.
struct Dispatched {
  uint64_t number = 0;
  bool taken = false;  ///< a backend's range has begun
};

/// Null outside of a dispatch.
Dispatched* dispatched_here() noexcept;

/// Begins to watch named ranges, which show how far backends get with collectives. Cheap when they are watched already. Any thread.
void watch_ranges();

}  // namespace pytracer::hooks
