// Blocks and segments of torch's caching allocators on devices. One writer at a time, under a lock of our own; readers in
// other processes use crashsafe::SeqSlot.
#pragma once
#include "blackbox/layout.h"
#include "core/core_cuda.h"

#include <cstdint>

namespace pytracer::core {

/// Taken for every change of the tables of devices. Its holders call no other code, so that it is never held for long.
class DeviceLock {
 public:
  DeviceLock() noexcept;
  ~DeviceLock() noexcept;
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
};

/// The live block that begins at `addr`; null: not known. With the lock held.
const blackbox::DeviceBlock* find_device_block(uint64_t addr) noexcept;

/// The number of the last event.
uint32_t device_sequence() noexcept;

/// In a forked child: a device cannot be used there, and its tables are empty.
void forget_device_memory() noexcept;

}  // namespace pytracer::core
