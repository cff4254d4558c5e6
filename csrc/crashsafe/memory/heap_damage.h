// Live storages behind which the heap is overwritten: glibc's malloc() notes the size of each block before it, right behind the one before.
#pragma once

namespace pytracer::crashsafe {

/// Crash step: adds the live storages of malloc() behind whose block no size is that malloc() writes to STORAGE_HITS; where there are none, the
/// lowest one before which there is none. Of an abort also the storage that this thread freed last. Nothing where another allocator is in use, or
/// above 2^19 slots.
void write_overrun_storages() noexcept;

}  // namespace pytracer::crashsafe
