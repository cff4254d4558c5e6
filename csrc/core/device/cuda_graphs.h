// CUDA graphs: blocks that they use and did not allocate, and whether those are still live. Under the lock of device_memory.h.
#pragma once
#include "blackbox/layout.h"
#include "core/core_cuda.h"

namespace pytracer::core {

/// Adds the tables. False when there is no room.
bool open_cuda_graphs() noexcept;

/// A block is freed: CUDA graphs that use it are broken.
void graph_memory_freed(const blackbox::DeviceBlock& life) noexcept;

/// A block was handed out where a freed input of a graph was.
void graph_memory_allocated(const pytracer_device_event& event, uint32_t sequence) noexcept;

}  // namespace pytracer::core
