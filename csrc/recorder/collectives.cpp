#include "collectives.h"

#include "../crashsafe/box.h"
#include "../crashsafe/sys.h"
#include "box_file.h"
#include "journal.h"
#include "scopes.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace pytracer::recorder {
namespace {

using namespace blackbox;

constexpr uint64_t kRecent = 256;                     // a backend's queue is shorter
constexpr uint32_t kPointToPoint = 1, kReturned = 8;  // CollectiveSlot.flags

std::atomic<CollectiveSlot*> ring{nullptr};
// Those before this number have all been started: nobody looks at them again. May lag behind, never run ahead.
std::atomic<uint64_t> first_waiting{1};

CollectiveSlot* slot_of(CollectiveSlot* slots, uint64_t number) { return slots + (number - 1) % kCollectives; }

bool is_of_group(const CollectiveSlot& slot, const char* group, size_t nbytes) {
  if (slot.group_id == 0) return false;
  const char* entry = g_box.journal.data + slot.group_id * 8ull + sizeof(EntryHeader);
  GroupEntry head;
  memcpy(&head, entry, sizeof head);
  return head.name_nbytes == nbytes && memcmp(entry + sizeof head, group, nbytes) == 0;
}

template <class Visit>
void each_of_group(const char* group, Visit visit) {
  CollectiveSlot* slots = ring.load(std::memory_order_acquire);
  uint64_t newest = std::atomic_ref(g_box.header->collectives).load(std::memory_order_acquire);
  if (slots == nullptr) return;
  size_t nbytes = strlen(group);
  for (uint64_t number = newest > kCollectives ? newest - kCollectives + 1 : 1; number <= newest; number++) {
    CollectiveSlot& slot = *slot_of(slots, number);
    if (std::atomic_ref(slot.order).load(std::memory_order_acquire) != static_cast<uint32_t>(number)) continue;
    if ((slot.flags & kPointToPoint) == 0 && is_of_group(slot, group, nbytes)) visit(slot);
  }
}

}  // namespace

bool open_collectives() noexcept {
  if (ring.load(std::memory_order_acquire) != nullptr) return true;
  auto* slots = static_cast<CollectiveSlot*>(add_region(RegionKind::kCollectives, sizeof(CollectiveSlot), kCollectives, 0, 0));
  if (slots != nullptr) ring.store(slots, std::memory_order_release);
  return slots != nullptr;
}

uint64_t collective_scheduled(const CollectiveSlot& described) noexcept {
  crashsafe::ensure_box(crashsafe::Need::kMust);  // a forked child may have none yet
  uint64_t number = std::atomic_ref(g_box.header->collectives).fetch_add(1, std::memory_order_relaxed) + 1;
  CollectiveSlot* slots = ring.load(std::memory_order_acquire);
  if (slots == nullptr) return 0;
  CollectiveSlot& slot = *slot_of(slots, number);
  std::atomic_ref order(slot.order);
  order.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader that sees new bytes sees order 0 before
  constexpr size_t kAfterOrder = sizeof slot.order;
  memcpy(reinterpret_cast<char*>(&slot) + kAfterOrder, reinterpret_cast<const char*>(&described) + kAfterOrder, sizeof slot - kAfterOrder);
  slot.state = static_cast<uint32_t>(CollectiveState::kScheduled);
  slot.number = number;
  slot.scheduled_ns = crashsafe::now_ns();
  slot.tid = crashsafe::sys_gettid();
  slot.step = g_box.header->step;
  slot.scope_id = current_scope();
  slot.epoch = tick();
  order.store(static_cast<uint32_t>(number), std::memory_order_release);
  return number;
}

uint64_t start_scheduled_collective(int (*fits)(const void* slot, const void* argument), const void* argument) noexcept {
  CollectiveSlot* slots = ring.load(std::memory_order_acquire);
  uint64_t newest = std::atomic_ref(g_box.header->collectives).load(std::memory_order_acquire);
  if (slots == nullptr) return 0;
  uint64_t first = std::max(first_waiting.load(std::memory_order_relaxed), newest > kRecent ? newest - kRecent + 1 : 1);
  bool none_waits = true;  // so far
  for (uint64_t number = first; number <= newest; number++) {
    CollectiveSlot& slot = *slot_of(slots, number);
    auto scheduled = static_cast<uint32_t>(CollectiveState::kScheduled);
    std::atomic_ref state(slot.state);
    bool written = std::atomic_ref(slot.order).load(std::memory_order_acquire) == static_cast<uint32_t>(number);
    none_waits = none_waits && written && state.load() != scheduled;
    if (none_waits) first_waiting.store(number + 1, std::memory_order_relaxed);
    if (!written || state.load() != scheduled || fits(&slot, argument) == 0) continue;
    if (!state.compare_exchange_strong(scheduled, static_cast<uint32_t>(CollectiveState::kStarted), std::memory_order_acq_rel)) continue;
    std::atomic_ref(slot.started_ns).store(crashsafe::now_ns(), std::memory_order_relaxed);
    return number;
  }
  return 0;
}

void collective_reached(uint64_t number, CollectiveState state) noexcept {
  CollectiveSlot* slots = ring.load(std::memory_order_acquire);
  if (slots == nullptr || number == 0) return;
  CollectiveSlot& slot = *slot_of(slots, number);
  if (std::atomic_ref(slot.order).load(std::memory_order_acquire) != static_cast<uint32_t>(number)) return;
  uint64_t now = crashsafe::now_ns();
  std::atomic_ref(state == CollectiveState::kStarted ? slot.started_ns : slot.ended_ns).store(now, std::memory_order_relaxed);
  // An end is never taken back: a backend may report the start of a short collective after its end.
  std::atomic_ref current(slot.state);
  uint32_t seen = current.load(std::memory_order_relaxed);
  while (seen < static_cast<uint32_t>(state) &&
         !current.compare_exchange_weak(seen, static_cast<uint32_t>(state), std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void group_reached(const char* group, uint64_t sequence_nr, CollectiveState state) noexcept {
  each_of_group(group, [&](const CollectiveSlot& slot) {
    if (slot.sequence_nr <= sequence_nr && slot.state < static_cast<uint32_t>(state)) collective_reached(slot.number, state);
  });
}

uint64_t group_scheduled(const char* group) noexcept {
  uint64_t last = 0;
  bool returned = false;
  each_of_group(group, [&](CollectiveSlot& slot) {
    if (slot.sequence_nr <= last) return;
    last = slot.sequence_nr;
    returned = (std::atomic_ref(slot.flags).load(std::memory_order_acquire) & kReturned) != 0;
  });
  return returned ? last : 0;
}

void collective_returned(uint64_t number) noexcept {
  CollectiveSlot* slots = ring.load(std::memory_order_acquire);
  if (slots == nullptr || number == 0) return;
  CollectiveSlot& slot = *slot_of(slots, number);
  if (std::atomic_ref(slot.order).load(std::memory_order_acquire) != static_cast<uint32_t>(number)) return;
  std::atomic_ref(slot.flags).fetch_or(kReturned, std::memory_order_release);
}

void close_collectives() noexcept { ring.store(nullptr, std::memory_order_relaxed); }

void forget_collectives() noexcept {
  g_box.header->collectives = 0;
  first_waiting.store(1, std::memory_order_relaxed);
  CollectiveSlot* slots = ring.load(std::memory_order_relaxed);
  if (slots != nullptr) memset(static_cast<void*>(slots), 0, sizeof(CollectiveSlot) * kCollectives);
}

}  // namespace pytracer::recorder
