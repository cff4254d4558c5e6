#include "foreign_storages.h"

#include "../crashsafe/box.h"
#include "../crashsafe/large.h"
#include "box_file.h"
#include "journal.h"
#include "thread_context.h"

#include <atomic>
#include <cstring>

namespace pytracer::recorder {
namespace {

using namespace blackbox;

constexpr uint32_t kTickMask = 1023;

// What is searched lies densely packed, outside of the box: a slot of the box is four cache lines.
struct Key {
  std::atomic<uint32_t> state{0};
  uint32_t generation = 0;
  std::atomic<uint64_t> addr{0}, identity{0};
};
PYTRACER_LARGE Key keys[kForeignStorages];
std::atomic<uint32_t> cursor{0}, used{0};

uint64_t number_of(uint32_t index) { return static_cast<uint64_t>(keys[index].generation) << 32 | (index + 1); }
uint32_t state(ForeignState value) { return static_cast<uint32_t>(value); }

ForeignStorage* table() noexcept {
  ForeignStorage* slots = g_box.foreign.load(std::memory_order_acquire);
  if (__builtin_expect(slots != nullptr, 1)) return slots;
  // Two threads may both add one: the second stays unused.
  auto* made = static_cast<ForeignStorage*>(add_region(RegionKind::kForeign, sizeof(ForeignStorage), kForeignStorages, 0, 0));
  if (made == nullptr) return nullptr;
  if (!g_box.foreign.compare_exchange_strong(slots, made, std::memory_order_acq_rel)) return slots;
  return made;
}

// In turn, skipping what lives: of the freed ones, the one whose slot was taken longest ago goes first.
bool claim(uint32_t& index) {
  for (uint32_t tries = 0; tries < kForeignStorages; tries++) {
    uint32_t at = cursor.fetch_add(1, std::memory_order_relaxed) % kForeignStorages;
    uint32_t seen = keys[at].state.load(std::memory_order_relaxed);
    if (seen != state(ForeignState::kEmpty) && seen != state(ForeignState::kFreed)) continue;
    // acquire: the fields must not be written before the slot is ours
    if (!keys[at].state.compare_exchange_strong(seen, state(ForeignState::kBusy), std::memory_order_acquire)) continue;
    index = at;
    uint32_t high = used.load(std::memory_order_relaxed);
    while (high < at + 1 && !used.compare_exchange_weak(high, at + 1, std::memory_order_relaxed)) {
    }
    return true;
  }
  return false;
}

uint32_t stamp(ThreadContext& context) {
  if ((++context.sequence & kTickMask) == 0) tick();
  return std::atomic_ref(g_box.header->epoch).load(std::memory_order_relaxed);
}

// The end of a name says more than its beginning.
void set_file(ForeignStorage& slot, const char* file) {
  size_t length = file != nullptr ? strlen(file) : 0, room = sizeof slot.file - 1, cut = length > room ? length - room : 0;
  if (cut != 0) slot.flags |= 2;
  memset(slot.file, 0, sizeof slot.file);
  if (length != 0) memcpy(slot.file, file + cut, length - cut);
}

uint32_t find(uint64_t value, std::atomic<uint64_t> Key::* field) {
  uint32_t count = used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; i++)
    if ((keys[i].*field).load(std::memory_order_relaxed) == value && keys[i].state.load(std::memory_order_acquire) == state(ForeignState::kLive))
      return i;
  return kForeignStorages;
}

}  // namespace

uint64_t foreign_allocated(const pytracer_foreign& birth) noexcept {
  ForeignStorage* slots = table();
  uint32_t index = 0;
  if (slots == nullptr || !claim(index)) {
    std::atomic_ref(g_box.header->foreign_dropped).fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  ForeignStorage& slot = slots[index];
  std::atomic_ref published(slot.state);
  published.store(state(ForeignState::kBusy), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader that sees new fields sees BUSY before
  ThreadContext& context = this_thread();
  Grave life{};
  life.base = birth.addr;
  life.nbytes = birth.nbytes;
  life.alloc_thread = context.index;
  life.alloc_who_id = birth.who_id;
  life.alloc_who_where = birth.who_where;
  life.alloc_epoch = life.free_epoch = stamp(context);
  life.alloc_sequence = life.free_sequence = context.sequence;
  life.origin = birth.origin;
  life.foreign = index + 1;
  memcpy(slot.life, &life, sizeof life);
  slot.generation = ++keys[index].generation;
  slot.identity = birth.identity;
  slot.file_offset = birth.file_offset;
  slot.flags = birth.older != 0 ? 1 : 0;
  set_file(slot, birth.file);
  published.store(state(ForeignState::kLive), std::memory_order_release);
  keys[index].addr.store(birth.addr, std::memory_order_relaxed);
  keys[index].identity.store(birth.identity, std::memory_order_relaxed);
  keys[index].state.store(state(ForeignState::kLive), std::memory_order_release);
  return number_of(index);
}

void foreign_freed(uint64_t number, pytracer_who_in_detail who) noexcept {
  uint32_t index = static_cast<uint32_t>(number) - 1;
  ForeignStorage* slots = g_box.foreign.load(std::memory_order_acquire);
  if (number == 0 || slots == nullptr || index >= kForeignStorages) return;
  if (number_of(index) != number) return;
  uint32_t live = state(ForeignState::kLive);
  if (!keys[index].state.compare_exchange_strong(live, state(ForeignState::kBusy), std::memory_order_acquire)) return;
  ForeignStorage& slot = slots[index];
  ThreadContext& context = this_thread();
  pytracer_who by = who();
  Grave life;
  memcpy(&life, slot.life, sizeof life);
  life.free_thread = context.index;
  life.free_who_id = by.id;
  life.free_who_where = by.where;
  life.free_epoch = stamp(context);
  life.free_sequence = context.sequence;
  memcpy(slot.life, &life, sizeof life);
  std::atomic_ref(slot.state).store(state(ForeignState::kFreed), std::memory_order_release);
  keys[index].state.store(state(ForeignState::kFreed), std::memory_order_release);
}

uint64_t foreign_of(uint64_t identity) noexcept {
  uint32_t index = identity != 0 ? find(identity, &Key::identity) : kForeignStorages;
  return index < kForeignStorages ? number_of(index) : 0;
}

bool foreign_known(uint64_t addr) noexcept { return find(addr, &Key::addr) < kForeignStorages; }

void recheck_foreign() noexcept {
  ForeignStorage* slots = g_box.foreign.load(std::memory_order_relaxed);
  if (slots == nullptr) return;
  // A later generation is the parent's, who went on while we copied. In private memory there is nothing at all.
  for (uint32_t i = 0; i < kForeignStorages; i++) {
    if (slots[i].generation != keys[i].generation || slots[i].state == state(ForeignState::kBusy)) slots[i].state = state(ForeignState::kEmpty);
    keys[i].state.store(slots[i].state, std::memory_order_relaxed);
  }
}

}  // namespace pytracer::recorder
