// Device memory: inaccessible address space, and a second mapping of the same pages for the runtime itself.
#pragma once
#include "state.h"

namespace fakecuda {

/// Reserves address space of a device, in granules, aligned to one. Null when there is none left. With the lock held.
void* reserve(int device, size_t nbytes);
/// Releases the address space and its pages.
void release(void* addr, size_t nbytes);
/// Releases the pages and keeps the address space.
void discard(void* addr, size_t nbytes);

/// The device that the address belongs to; -1: the host.
int device_of(const void* addr);
/// Where the runtime may access the memory: the shadow of a device address, any other address itself.
void* accessible(const void* addr);

/// Bytes handed out by a device.
size_t& used_bytes(int device);
size_t in_granules(size_t nbytes);

}  // namespace fakecuda
