// Addresses of named tensors: updated by the handler, and now and then by the core.
#pragma once
#include "blackbox/layout.h"

namespace pytracer::crashsafe {

/// The slot of that number, from 1; null when there is none.
blackbox::NameSlot* name_slot(uint32_t number) noexcept;

/// Updates the addresses of the tensors of all slots. `epoch`: this moment, later than the allocation of every storage.
void look_at_named_tensors(uint32_t epoch) noexcept;

/// Of a slot with the flag kHeld: the dict in which its tensor is, under which key. Both live as long as the slot's module.
void name_is_held(uint32_t number, uint64_t dict, uint64_t key) noexcept;

/// The same for one slot whose object was just given to it.
void look_at_new_name(blackbox::NameSlot& slot, uint32_t epoch) noexcept;

/// Crash step.
void write_names() noexcept;

}  // namespace pytracer::crashsafe
