#include "core/tables/collectives.h"

#include "core/file/journal.h"
#include "core/file/regions.h"
#include "core/process/exit.h"
#include "core/tables/scopes.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/sys.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint64_t kRecent = 256;                     // a backend's queue is shorter
constexpr uint32_t kPointToPoint = 1, kReturned = 8;  // CollectiveSlot.flags

std::atomic<CollectiveSlot*> ring{nullptr};
// By slot, the number of the last collective whose call has returned: the flag in the slot does not identify the collective.
PYTRACER_LARGE std::atomic<uint64_t> returned[kCollectives] = {};
// All before this number have been started and are not searched again. May lag behind, never run ahead.
std::atomic<uint64_t> first_waiting{1};

CollectiveSlot& slot_of(CollectiveSlot* slots, uint64_t number) { return crashsafe::Ring<CollectiveSlot, kCollectives>(slots).at(number); }

// Number and state of a slot are in one word, and a state is set only while the number is still the one that was read: the ring may
// have wrapped meanwhile. Other code accesses the two halves separately, which the supported processors keep in one order.
static_assert(offsetof(CollectiveSlot, order) == 0 && offsetof(CollectiveSlot, state) == 4 && std::endian::native == std::endian::little);

// The word while the slot has that number.
uint64_t numbered(uint64_t number, CollectiveState state) { return static_cast<uint64_t>(state) << 32 | static_cast<uint32_t>(number); }
bool has_number(uint64_t word, uint64_t number) { return static_cast<uint32_t>(word) == static_cast<uint32_t>(number); }

uint64_t number_and_state(CollectiveSlot& slot) { return crashsafe::SeqNumber(reinterpret_cast<uint64_t&>(slot)).begin_read(); }

// release: a reader that sees the state sees its time. `seen` becomes the current word.
bool set_state(CollectiveSlot& slot, uint64_t& seen, uint64_t wanted) {
  using Word [[gnu::may_alias]] = uint64_t;
  return __atomic_compare_exchange_n(reinterpret_cast<Word*>(&slot), &seen, wanted, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

// A thread that is overtaken by the ring here stores a time before that of the newer collective's call, which readers ignore.
void note_time(uint64_t& member, uint64_t now) { std::atomic_ref(member).store(now, std::memory_order_relaxed); }

bool is_of_group(uint32_t group_id, const char* group, size_t nbytes) {
  if (group_id == 0) return false;
  const char* entry = g_box.journal.data + group_id * 8ull + sizeof(EntryHeader);
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
    CollectiveSlot& slot = slot_of(slots, number);
    crashsafe::SeqNumber order(slot.order);
    if (order.begin_read() != static_cast<uint32_t>(number)) continue;
    uint32_t state = std::atomic_ref(slot.state).load(std::memory_order_relaxed);
    uint64_t sequence_nr = std::atomic_ref(slot.sequence_nr).load(std::memory_order_relaxed);
    uint32_t group_id = std::atomic_ref(slot.group_id).load(std::memory_order_relaxed);
    uint32_t flags = std::atomic_ref(slot.flags).load(std::memory_order_relaxed);
    if (!order.is_still(static_cast<uint32_t>(number))) continue;  // the ring wrapped
    if ((flags & kPointToPoint) == 0 && is_of_group(group_id, group, nbytes)) visit(number, sequence_nr, state);
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
  crashsafe::Ring<CollectiveSlot, kCollectives>(slots).write(number, [&](CollectiveSlot& slot) {
    constexpr size_t kAfterOrder = sizeof slot.order;
    memcpy(reinterpret_cast<char*>(&slot) + kAfterOrder, reinterpret_cast<const char*>(&described) + kAfterOrder, sizeof slot - kAfterOrder);
    slot.state = static_cast<uint32_t>(CollectiveState::kScheduled);
    slot.number = number;
    slot.scheduled_ns = crashsafe::now_ns();
    slot.tid = crashsafe::sys_gettid();
    slot.step = std::atomic_ref(g_box.header->step).load(std::memory_order_relaxed);
    slot.scope_id = current_scope();
    slot.epoch = tick();
  });
  return number;
}

uint64_t start_scheduled_collective(int (*fits)(const void* slot, const void* argument), const void* argument) noexcept {
  CollectiveSlot* slots = ring.load(std::memory_order_acquire);
  uint64_t newest = std::atomic_ref(g_box.header->collectives).load(std::memory_order_acquire);
  if (slots == nullptr) return 0;
  uint64_t first = std::max(first_waiting.load(std::memory_order_relaxed), newest > kRecent ? newest - kRecent + 1 : 1);
  bool none_waits = true;  // so far
  for (uint64_t number = first; number <= newest; number++) {
    CollectiveSlot& slot = slot_of(slots, number);
    uint64_t seen = number_and_state(slot);
    bool waits = seen == numbered(number, CollectiveState::kScheduled);
    none_waits = none_waits && !waits && has_number(seen, number);
    if (none_waits) first_waiting.store(number + 1, std::memory_order_relaxed);
    if (!waits || fits(&slot, argument) == 0 || !set_state(slot, seen, numbered(number, CollectiveState::kStarted))) continue;
    note_time(slot.started_ns, crashsafe::now_ns());
    return number;
  }
  return 0;
}

void collective_reached(uint64_t number, CollectiveState state) noexcept {
  CollectiveSlot* slots = ring.load(std::memory_order_acquire);
  if (slots == nullptr || number == 0) return;
  CollectiveSlot& slot = slot_of(slots, number);
  uint64_t seen = number_and_state(slot);
  if (!has_number(seen, number)) return;
  uint64_t now = crashsafe::now_ns();
  note_time(state == CollectiveState::kStarted ? slot.started_ns : slot.ended_ns, now);
  // An end is never reverted: a backend may report the start of a short collective after its end. The state is the upper half.
  uint64_t wanted = numbered(seen, state);
  while (seen < wanted && !set_state(slot, seen, wanted) && has_number(seen, wanted)) {
  }
  if (state == CollectiveState::kFailed) write_failure_stacks();
}

void group_reached(const char* group, uint64_t sequence_nr, CollectiveState state) noexcept {
  each_of_group(group, [&](uint64_t number, uint64_t its_sequence_nr, uint32_t its_state) {
    if (its_sequence_nr <= sequence_nr && its_state < static_cast<uint32_t>(state)) collective_reached(number, state);
  });
}

uint64_t group_scheduled(const char* group) noexcept {
  uint64_t last = 0;
  bool has_returned = false;
  each_of_group(group, [&](uint64_t number, uint64_t sequence_nr, uint32_t) {
    if (sequence_nr <= last) return;
    last = sequence_nr;
    has_returned = returned[(number - 1) % kCollectives].load(std::memory_order_acquire) == number;
  });
  return has_returned ? last : 0;
}

void collective_returned(uint64_t number) noexcept {
  CollectiveSlot* slots = ring.load(std::memory_order_acquire);
  if (slots == nullptr || number == 0) return;
  CollectiveSlot& slot = slot_of(slots, number);
  if (std::atomic_ref(slot.order).load(std::memory_order_acquire) != static_cast<uint32_t>(number)) return;
  std::atomic_ref(slot.flags).fetch_or(kReturned, std::memory_order_relaxed);
  // release: a thread that sees the number sees what the backend did in the call
  std::atomic<uint64_t>& latest = returned[(number - 1) % kCollectives];
  uint64_t seen = latest.load(std::memory_order_relaxed);
  while (seen < number && !latest.compare_exchange_weak(seen, number, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void close_collectives() noexcept { ring.store(nullptr, std::memory_order_relaxed); }

void forget_collectives() noexcept {
  g_box.header->collectives = 0;
  first_waiting.store(1, std::memory_order_relaxed);
  CollectiveSlot* slots = ring.load(std::memory_order_relaxed);
  if (slots == nullptr) return;
  memset(static_cast<void*>(slots), 0, sizeof(CollectiveSlot) * kCollectives);
  for (auto& number : returned) number.store(0, std::memory_order_relaxed);
}

}  // namespace pytracer::core
