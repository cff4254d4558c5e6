// Live storages in an open-addressing table that grows in tiers; a free copies the allocation lifetime into the thread's ring of freed
// storages. Lock-free: a slot is taken by one compare-and-swap and published last (docs/reference/blackbox.md). Its users are in core.h:
// pytracer_storage_allocated and pytracer_storage_freed.
#pragma once
namespace pytracer::core {

/// Adds the first tier. False when there is no room: nothing will be recorded.
bool open_storage_table() noexcept;

/// True when a live storage begins at `addr`.
bool storage_known(const void* addr) noexcept;

/// In a forked child, whose table was copied: the count of live storages starts from the copy.
void recount_storages() noexcept;

}  // namespace pytracer::core
