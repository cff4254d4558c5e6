// Addresses to journal ids, without a lock. Entries are removed when the object is destroyed.
#pragma once
#include <atomic>
#include <cstdint>

namespace pytracer::hooks {

/// Open addressing over a fixed array. Keys are above kRetired; values are never 0.
template <uint32_t kLog2>
class InternMap {
 public:
  /// The id of `key`; 0 when it is not known.
  uint32_t find(uint64_t key) const noexcept {
    for (uint64_t i = 0, at = first(key); i < kSlots; i++, at = (at + 1) & kMask) {
      uint64_t seen = slots_[at].key.load(std::memory_order_acquire);
      if (seen == key) return slots_[at].id;
      if (seen == kEmpty) return 0;
    }
    return 0;
  }

  /// Adds a key. Two threads may add the same one: both entries mean the same thing. False when the map is full.
  bool add(uint64_t key, uint32_t id) noexcept {
    for (uint64_t i = 0, at = first(key); i < kSlots; i++, at = (at + 1) & kMask) {
      uint64_t seen = slots_[at].key.load(std::memory_order_relaxed);
      if (seen != kEmpty && seen != kRetired) continue;
      if (!slots_[at].key.compare_exchange_strong(seen, kBusy, std::memory_order_acquire, std::memory_order_relaxed)) continue;
      slots_[at].id = id;
      slots_[at].key.store(key, std::memory_order_release);
      return true;
    }
    return false;
  }

  /// Removes every entry of `key`. True when there was one.
  bool retire(uint64_t key) noexcept {
    bool found = false;
    for (uint64_t i = 0, at = first(key); i < kSlots; i++, at = (at + 1) & kMask) {
      uint64_t seen = slots_[at].key.load(std::memory_order_relaxed);
      if (seen == kEmpty) break;
      if (seen != key) continue;
      slots_[at].key.store(kRetired, std::memory_order_release);
      found = true;
    }
    return found;
  }

 private:
  static constexpr uint64_t kSlots = 1ull << kLog2, kMask = kSlots - 1;
  static constexpr uint64_t kEmpty = 0, kBusy = 1, kRetired = 2;
  static uint64_t first(uint64_t key) noexcept { return ((key >> 4) * 0x9E3779B97F4A7C15ull) >> (64 - kLog2); }

  struct Slot {
    std::atomic<uint64_t> key{kEmpty};
    uint32_t id = 0;
  };
  Slot slots_[kSlots];
};

}  // namespace pytracer::hooks
