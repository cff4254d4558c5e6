// Damage beside guarded storages: their canaries, filled when they are allocated and compared when they end.
#pragma once
#include "guard/pool/arena.h"

#include <cstdint>

namespace pytracer::guard {

/// What lies beside the storage in its own pages, up to a page on each side.
void fill_canaries(const Slot& slot) noexcept;

/// Writes what changed to the ledger. For the thread that frees the storage.
void look_for_damage(uint32_t index) noexcept;

/// The same for a storage that another thread may free meanwhile.
void look_from_outside(uint32_t index) noexcept;

}  // namespace pytracer::guard
