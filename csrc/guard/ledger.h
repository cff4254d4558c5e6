// The record of each guarded storage, in the black box: it survives the process, and a quarantine that is longer than the rings of freed
// storages. Slots of storages in quarantine are reused, the one that was freed first before the others.
#pragma once
#include "blackbox/layout.h"
#include "guard/canary.h"
#include "guard/guard.h"
#include "guard/pool/arena.h"

namespace pytracer::guard {

class Ledger {
 public:
  /// Adds the regions. False when the black box has no room.
  bool open(uint32_t slots, const Host& host) noexcept;

  /// Callers hold the lock. Returns a slot, or kNone when all storages of the ledger are live.
  uint32_t take() noexcept;
  void give_back(uint32_t slot) noexcept;

  /// The storage of the slot is in quarantine from now on; the oldest ones leave when slots are needed.
  void retire(uint32_t slot) noexcept;

  void write_birth(uint32_t slot, CallSite site) noexcept;
  void write_end(uint32_t slot, CallSite site) noexcept;

  /// Side as GuardedStorage.damage_side. Also a journal entry, since records are reused.
  void write_damage(uint32_t slot, uint32_t side, const Damage& damage) noexcept;

  Slot& slot(uint32_t index) noexcept { return slots_[index]; }
  const Slot& slot(uint32_t index) const noexcept { return slots_[index]; }
  const Slot* slots() const noexcept { return slots_; }
  uint32_t count() const noexcept { return count_; }

  /// Nothing is written from now on: the black box is another process's.
  void forget_box() noexcept;

  /// Settings and counters in the black box.
  blackbox::GuardRegion& region() noexcept { return *region_; }

  static constexpr uint32_t kNone = ~0u;

 private:
  blackbox::GuardRegion* region_ = nullptr;
  blackbox::GuardedStorage* records_ = nullptr;
  Slot* slots_ = nullptr;
  uint32_t* queue_ = nullptr;  // freed slots, oldest first, as a ring
  uint32_t (*append_)(blackbox::EntryKind kind, const void* data, size_t nbytes) noexcept = nullptr;
  uint32_t count_ = 0, fresh_ = 0, head_ = 0, queued_ = 0;
};

}  // namespace pytracer::guard
