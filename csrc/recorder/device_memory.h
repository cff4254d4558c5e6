// Blocks and segments of torch's caching allocators on devices. One writer at a time, under a lock of our own; readers look at
// `order`, which is 0 while an item is being written.
#pragma once
#include "../blackbox/layout.h"
#include "core_cuda.h"

#include <atomic>
#include <cstdint>

namespace pytracer::recorder {

/// Taken by whoever changes the tables of devices. Holders call nobody, so that it is never held for long.
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

/// Writes one item: `change` sees it with order 0, and it is published with `order`.
template <class Item, class Change>
void write_item(Item& item, uint32_t order, Change change) noexcept {
  std::atomic_ref shown(item.order);
  shown.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader that sees new fields sees order 0 before
  change(item);
  shown.store(order, std::memory_order_release);
}

}  // namespace pytracer::recorder
