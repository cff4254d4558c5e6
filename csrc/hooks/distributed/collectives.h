// Collectives as c10d dispatches them: every argument, before a backend sees it.
#pragma once
#include <cstdint>

namespace pytracer::hooks {

/// The collective that is being dispatched on the calling thread: its number in the box, and what a backend's range adds. A range
/// that begins meanwhile is this collective's.
struct Dispatched {
  uint64_t number = 0;
  bool taken = false;  ///< a backend's range has begun
};

/// Null outside of a dispatch.
Dispatched* dispatched_here() noexcept;

/// Begins to watch named ranges, by which backends tell how far collectives get. Again and again is no harm. Any thread.
void watch_ranges();

}  // namespace pytracer::hooks
