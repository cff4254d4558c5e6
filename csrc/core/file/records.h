// Records in this thread's ring: reserve, fill, publish. Never waits; the oldest one is overwritten.
#pragma once
#include "blackbox/layout.h"

#include <cstddef>
#include <cstdint>

namespace pytracer::core {

/// Writes one record; a payload beyond the slot is cut. Any thread.
void write_record(blackbox::RecordKind kind, const void* payload, size_t nbytes) noexcept;

/// Completes the calling thread's last record if it is of that kind: `bits` are added to the word at `offset` of its payload, of which
/// `kept` stay.
void amend_record(blackbox::RecordKind kind, size_t offset, uint32_t kept, uint32_t bits) noexcept;

}  // namespace pytracer::core
