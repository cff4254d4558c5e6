// Which storages are guarded: all from a size on, or one in so many.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pytracer::guard {

/// Before any thread asks.
void set_sampling(uint64_t every, uint64_t min_bytes) noexcept;

/// Whether the storage that is about to be made is one. Two nanoseconds.
bool chosen(size_t nbytes) noexcept;

}  // namespace pytracer::guard
