// Records in this thread's ring: reserve, fill, publish. Never waits; the oldest one is overwritten.
#pragma once
#include "blackbox/layout.h"

#include <cstddef>
#include <cstdint>

namespace pytracer::core {

/// Writes one record; a payload beyond the slot is cut. Any thread.
void write_record(blackbox::RecordKind kind, const void* payload, size_t nbytes) noexcept;

}  // namespace pytracer::core
