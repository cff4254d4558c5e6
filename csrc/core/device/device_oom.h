// What a device's memory was used for when an allocation failed.
#pragma once
#include "blackbox/layout.h"
#include "core/core_cuda.h"

namespace pytracer::core {

/// Writes a DEVICE_OOM entry: sums, and the places that allocated the most. About a millisecond; with the lock held.
void write_device_oom(const pytracer_device_event& event, const blackbox::DeviceBlock* blocks, uint32_t block_slots,
                      const blackbox::DeviceSegment* segments, uint32_t segment_slots) noexcept;

}  // namespace pytracer::core
