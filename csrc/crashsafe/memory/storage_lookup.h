// What lived at an address, from the table and the graves as they are at this moment.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

/// Crash step: one pass over live storages and graves; writes STORAGE_HITS. Above 2^19 slots the reader does it alone.
void write_storage_hits(uint64_t addr) noexcept;

}  // namespace pytracer::crashsafe
