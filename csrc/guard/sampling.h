// Which storages are guarded: all from a size on, or one in so many. guard::chosen() asks.
#pragma once
#include <cstdint>

namespace pytracer::guard {

/// Before any thread calls chosen().
void set_sampling(uint64_t every, uint64_t min_bytes) noexcept;

}  // namespace pytracer::guard
