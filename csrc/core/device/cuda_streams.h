// CUDA streams that the program uses, and their last known states. Under the lock of device_memory.h.
#pragma once
#include "blackbox/layout.h"

#include <cstdint>

namespace pytracer::core {

/// Adds the table. False when there is no room.
bool open_cuda_streams() noexcept;

/// kUnknown only adds the stream.
void note_stream(uint32_t device, uint64_t stream, blackbox::StreamState state, int32_t error) noexcept;

}  // namespace pytracer::core
