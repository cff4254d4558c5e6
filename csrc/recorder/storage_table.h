// Live storages in an open-addressing table that grows in tiers; a free copies the whole life into the thread's graves.
// Lock-free: a slot is taken by one compare-and-swap and published last (docs/blackbox.md). Its users are in core.h:
// pytracer_storage_allocated and pytracer_storage_freed.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pytracer::recorder {

/// Who allocated or freed: a journal id, and the place inside it (schema.py, LiveStorage.who_where).
struct Who {
  uint32_t id = 0;
  uint32_t where = 0;
};

/// Adds the first tier. False when there is no room: nothing will be recorded.
bool open_storage_table() noexcept;

/// Who frees: Who.where in the upper half and Who.id in the lower one. `large` tells that detail is worth its cost.
using AskWho = uint64_t (*)(bool large);

/// True when a live storage begins at `addr`.
bool storage_known(const void* addr) noexcept;

/// In a forked child, whose table was copied: the count of live storages starts from the copy.
void recount_storages() noexcept;

}  // namespace pytracer::recorder
