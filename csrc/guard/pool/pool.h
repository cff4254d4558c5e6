// The pool of guarded storages: where each one lies, what the budgets allow, and the totals in the black box.
#pragma once
#include "guard/guard.h"
#include "guard/ledger.h"
#include "guard/pool/arena.h"
#include "guard/pool/chunks.h"

#include <pthread.h>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pytracer::guard {

/// A guarded storage costs two system calls: the lock around the book-keeping is cheap in comparison.
class Locked {
 public:
  Locked() noexcept;
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  /// Without waiting. When true, unlock() is the caller's duty.
  static bool try_lock() noexcept;
  static void unlock() noexcept;
};

struct Placed {
  uint32_t slot = Ledger::kNone;
  bool again = false;  ///< markers were refused: retry with protection
};

/// Unless stated otherwise, callers hold the lock. The numbers that decide are private: others can read and damage the black box.
class Pool {
 public:
  /// Once. 0, or an errno with `what` naming the step.
  int open(const Settings& settings, const Host& host, const char*& what) noexcept;
  void change(const Settings& settings) noexcept;

  /// Reserves a range in the tables; nothing is accessible yet. kNone when a budget forbids it, which is counted.
  Placed place(size_t nbytes) noexcept;
  /// The book-keeping of `place`, reverted. `in_chunk`: in_open_chunk() before.
  void leave(const Slot& slot, bool in_chunk) noexcept;

  /// The kernel refuses markers from now on, e.g. after mlockall(): protection still works.
  void use_protection(int error) noexcept;
  /// A small storage in an open chunk could not be marked: its pages become a hole of the chunk. False when the budget forbids it.
  bool affords_hole() const noexcept;
  void add_hole(const Slot& slot) noexcept { chunks_.add_hole(slot.first); }

  /// Settings, ranges and totals to the black box. Also in a forked child, whose black box may be an empty one.
  void publish() noexcept;

  // Without the lock.
  bool in_open_chunk(const Slot& slot) const noexcept { return !slot.large && chunks_.is_open(slot.first); }
  bool contains(const void* at) const noexcept { return small_.contains(at) || large_.contains(at); }
  /// The slot that last had this address; any number when there was none.
  uint32_t slot_at(const void* at) const noexcept { return (small_.contains(at) ? small_ : large_).owner_of(at) - 1; }
  const Arena& arena_of(const Slot& slot) const noexcept { return slot.large ? large_ : small_; }
  /// Not inherited over fork: the parent may have damaged inherited storages, and reports that itself.
  bool is_own(const Slot& slot) const noexcept { return slot.number > inherited_until_; }
  void count(uint64_t blackbox::GuardRegion::* counter) noexcept;

  Ledger ledger;

 private:
  Arena& arena_for(const Slot& slot) noexcept { return slot.large ? large_ : small_; }
  uint64_t mappings() const noexcept;
  bool affords(uint64_t more) const noexcept { return mappings() + more <= settings_.budget_mappings; }
  size_t page_bytes_of(size_t nbytes) const noexcept;
  Placed refuse(uint32_t slot, uint64_t blackbox::GuardRegion::* counter) noexcept;
  void lay_out(Slot& slot, size_t nbytes) noexcept;
  void publish_totals() noexcept;
  static void begin_in_child();

  Arena small_, large_;
  Chunks chunks_;
  Settings settings_;
  Host host_{};
  std::atomic<blackbox::GuardMechanism> mechanism_{blackbox::GuardMechanism::kNone};  // of small storages
  size_t page_bytes_ = 4096;
  uint64_t last_number_ = 0, inherited_until_ = 0, protected_live_ = 0, live_ = 0, live_bytes_ = 0, most_bytes_ = 0;
};

extern Pool g_pool;

/// pytracer_guarding.
inline constexpr int kArmed = 1, kPool = 2;
inline constexpr uint32_t kMostSlots = 1 << 16;

}  // namespace pytracer::guard
