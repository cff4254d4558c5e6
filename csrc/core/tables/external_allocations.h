// Storages in memory that torch's CPU allocators did not hand out: arrays of NumPy, buffers, DLPack, from_blob, shared memory,
// mapped files. Rarer than others, at any address, several of them in one place: a table of their own (docs/reference/blackbox.md).
#pragma once
#include "core/core.h"
#include "core/tables/storage_table.h"

namespace pytracer::recorder {

/// Returns a number that is valid until the storage is freed, 0 when it found no slot (counted). Any thread.
uint64_t foreign_allocated(const pytracer_foreign& birth) noexcept;

/// Before the memory is given back. A number that is not valid any more is ignored.
void foreign_freed(uint64_t number, pytracer_who_in_detail who) noexcept;

/// The number of the live one that `identity` owns; 0 when there is none.
uint64_t foreign_of(uint64_t identity) noexcept;

/// True when a live one begins at `addr`.
bool foreign_known(uint64_t addr) noexcept;

/// In a forked child: the table was copied, or there is none.
void recheck_foreign() noexcept;

}  // namespace pytracer::recorder
