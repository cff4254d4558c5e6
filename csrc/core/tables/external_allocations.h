// External allocations: storages in memory that torch's CPU allocators did not allocate: NumPy arrays, buffers, DLPack, from_blob, shared
// memory, mapped files. Rarer than others, at any address, several at one address: a table of their own (docs/reference/blackbox.md).
#pragma once
#include "core/core.h"
#include "core/tables/storage_table.h"

namespace pytracer::core {

/// Returns a number that is valid until the storage is freed, 0 when it found no slot (counted). Any thread.
uint64_t external_allocated(const pytracer_external& birth) noexcept;

/// Before the memory is released. A number that is no longer valid is ignored.
void external_freed(uint64_t number, pytracer_detailed_call_site site) noexcept;

/// The number of the live one that `identity` owns; 0 when there is none.
uint64_t external_of(uint64_t identity) noexcept;

/// True when a live one begins at `addr`.
bool external_known(uint64_t addr) noexcept;

/// In a forked child: the table was copied, or there is none.
void recheck_external_allocations() noexcept;

}  // namespace pytracer::core
