// How a dying process wakes the launcher's helper: a small file that all processes of a run on one machine have mapped.
// Shared by the core and the helper program, which are built together; nobody else reads it.
#pragma once
#include <atomic>
#include <cstdint>

namespace pytracer {

inline constexpr char kDoorbellMagic[8] = {'p', 'y', 't', 'r', 'b', 'e', 'l', '1'};
inline constexpr const char* kDoorbellName = "doorbell";
inline constexpr uint32_t kDoorbellSlots = 64, kBoxNameBytes = 120;

/// A request. `pid` is 0 while the slot is free, -1 while it is being filled, else the process that waits.
struct DoorbellSlot {
  std::atomic<int32_t> pid;
  uint32_t reserved;
  char box[kBoxNameBytes];  // name of its black box in boxes/
};

struct Doorbell {
  char magic[8];
  std::atomic<uint32_t> rings;  // futex word; counts the requests
  std::atomic<int32_t> helper_pid;
  uint64_t reserved[6];
  DoorbellSlot slots[kDoorbellSlots];
};
static_assert(sizeof(DoorbellSlot) == 128 && sizeof(Doorbell) == 64 + kDoorbellSlots * 128);
static_assert(std::atomic<int32_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace pytracer
