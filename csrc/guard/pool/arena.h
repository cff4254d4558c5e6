// Addresses of guarded storages: one reservation in equal units, allocated in rounds, so that what was freed last is reused last.
//
//     [guard] [data ... data] [guard] [data] [guard] ...
//
// Every run of data ends with a guard unit of its own; the one before it belongs to the previous run, or is unused.
// Callers hold the lock of pool.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pytracer::guard {

/// One guarded storage, in private memory: the black box has a copy, which others may read and damage.
struct Slot {
  char* base = nullptr;
  size_t nbytes = 0;
  char* low = nullptr;  // its pages: [low, high)
  char* high = nullptr;
  uint64_t number = 0;
  uint32_t first = 0, units = 0;  // of the arena, with the guard behind
  bool occupied = false;
  bool large = false;
};

class Arena {
 public:
  /// Reserves address space of at most `most` bytes; huge pages when `large`. Where address space is limited (ulimit -v), a little at
  /// first, and more when storages need it, up to a share of the limit. False when refused.
  bool open(size_t most, size_t unit_bytes, bool large, const Slot* slots) noexcept;

  bool contains(const void* at) const noexcept { return static_cast<size_t>(static_cast<const char*>(at) - low_) < bytes_; }

  /// A run of free units none of which `refuses(first, units)`; kNowhere when there is none.
  template <class Refuses>
  uint32_t place(uint32_t units, Refuses refuses) noexcept {
    uint32_t at = cursor_;
    for (bool wrapped = false;;) {
      if (units >= count_ || at > count_ - units) {
        if (grow()) continue;
        if (wrapped || units >= count_) return kNowhere;
        wrapped = true;
        at = 1;
        continue;
      }
      uint32_t next = after_occupied(at, units);
      if (next == 0) next = refuses(at, units);
      if (next == 0) break;
      if (wrapped && next > cursor_) return kNowhere;
      at = next;
    }
    cursor_ = at + units;
    return at;
  }

  void own(uint32_t first, uint32_t units, uint32_t slot) noexcept;

  /// 1 + the slot of the last run that had the unit of `at`; 0: none.
  uint32_t owner_of(const void* at) const noexcept { return owner_[index_of(static_cast<const char*>(at))]; }

  char* unit(uint32_t index) const noexcept { return low_ + static_cast<size_t>(index) * unit_; }
  uint32_t index_of(const char* at) const noexcept { return static_cast<uint32_t>(static_cast<size_t>(at - low_) / unit_); }
  size_t unit_bytes() const noexcept { return unit_; }
  uint32_t count() const noexcept { return count_; }
  uint32_t most_count() const noexcept { return static_cast<uint32_t>(most_bytes_ / unit_); }
  uint32_t cursor() const noexcept { return cursor_; }
  char* low() const noexcept { return low_; }
  char* high() const noexcept { return low_ + bytes_; }

  static constexpr uint32_t kNowhere = 0;  // unit 0 is a guard for ever

 private:
  /// 0 when all units are free, else the first unit behind the run that is in the way.
  uint32_t after_occupied(uint32_t at, uint32_t units) const noexcept;

  /// Twice as large, unless that is the most, or something else lies there by now.
  bool grow() noexcept;

  char* low_ = nullptr;
  size_t bytes_ = 0, most_bytes_ = 0, unit_ = 1;
  uint32_t count_ = 0, cursor_ = 1;
  bool large_ = false;
  uint32_t* owner_ = nullptr;  // 1 + slot of the last run that had the unit; touched where the pool is
  const Slot* slots_ = nullptr;
};

}  // namespace pytracer::guard
