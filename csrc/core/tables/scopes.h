// The scope of a thread's collectives (an FSDP unit, a DDP hook), and the ring of tensors seen there.
#pragma once
#include "blackbox/layout.h"

#include <cstddef>
#include <cstdint>

namespace pytracer::core {

/// Sets the calling thread's scope to `id`, a journal id of a SCOPE; 0: none. Returns the previous one.
uint32_t enter_scope(uint32_t id) noexcept;

uint32_t current_scope() noexcept;

/// Adds the ring of tensors, once per recording. False when there is no room.
bool open_scoped_tensors() noexcept;

/// One slot for each tensor; `addr` and `nbytes` are read. Begins a new epoch. Any thread.
void scoped_tensors(blackbox::TensorRole role, const blackbox::ScopedTensor* tensors, size_t count) noexcept;

/// In a forked child: its parent's tensors are not its own.
void forget_scoped_tensors() noexcept;
/// Nothing is written from now on: the black box is another process's.
void close_scoped_tensors() noexcept;

}  // namespace pytracer::core
