// The storages at an address: live ones from the tables, freed ones from the rings of freed storages, as they are at this moment.
#pragma once
#include "blackbox/layout.h"

#include <cstdint>

namespace pytracer::crashsafe {

/// Crash step: one pass over live and freed storages; writes STORAGE_HITS. Above 2^19 slots it is left to the reader.
void write_storage_hits(uint64_t addr) noexcept;

/// Which of two freed storages ended later.
bool is_later(const blackbox::StorageLifetime& a, const blackbox::StorageLifetime& b) noexcept;

/// The lifetime of a live storage, of which only the allocation is set; the end is a copy of it. `key`: the slot's, as it was read.
blackbox::StorageLifetime lifetime_of(const blackbox::LiveStorage& slot, uint64_t key) noexcept;

}  // namespace pytracer::crashsafe
