// The ring of collectives: one slot each, whose state changes in place. Separate from the threads' rings, which a few autograd nodes
// would fill.
#pragma once
#include "blackbox/layout.h"

#include <cstdint>

namespace pytracer::core {

/// Adds the region, once per recording. False when there is no room: collectives are counted only.
bool open_collectives() noexcept;

/// Writes a slot; `order`, `number`, `scheduled_ns`, `tid`, `step`, `scope_id` and `epoch` are filled in. Begins a new epoch.
/// Returns its number, 0 when it is not kept. Any thread.
uint64_t collective_scheduled(const blackbox::CollectiveSlot& slot) noexcept;

/// Takes the oldest recent collective that is still scheduled and that `fits(slot, argument)`: it has started now. Returns its
/// number, 0 when there is none. For backends that run collectives on threads of their own.
uint64_t start_scheduled_collective(int (*fits)(const void* slot, const void* argument), const void* argument) noexcept;

/// Notes a later state, unless the slot has been taken by a newer collective.
void collective_reached(uint64_t number, blackbox::CollectiveState state) noexcept;

/// All collectives of the group up to `sequence_nr` have reached `state`, by the backend's own records. Point-to-point
/// operations have other numbers.
void group_reached(const char* group, uint64_t sequence_nr, blackbox::CollectiveState state) noexcept;

/// The highest number of the group's collectives in the ring. 0: none, or its call has not returned.
uint64_t group_scheduled(const char* group) noexcept;

/// The backend has it, queued or done.
void collective_returned(uint64_t number) noexcept;

/// In a forked child: its parent's collectives are not its own.
void forget_collectives() noexcept;
/// Nothing is written from now on: the black box is another process's.
void close_collectives() noexcept;

}  // namespace pytracer::core
