#include "core/tables/external_allocations.h"

#include "core/file/journal.h"
#include "core/file/regions.h"
#include "core/tables/thread_context.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/large.h"

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint32_t kTickMask = 1023;

// The searched fields are densely packed, outside of the black box: a slot there is four cache lines.
struct Key {
  uint64_t life = 0;  // generation << 32 | ExternalState, as in the black box: a change of state refers to one allocation
  std::atomic<uint64_t> addr{0}, identity{0};
};
PYTRACER_LARGE Key keys[kExternalAllocations];
std::atomic<uint32_t> cursor{0}, used{0};

constexpr uint32_t state(ExternalState value) { return static_cast<uint32_t>(value); }
uint64_t life(uint32_t generation, ExternalState value) { return static_cast<uint64_t>(generation) << 32 | state(value); }
uint32_t generation_of(uint64_t life) { return static_cast<uint32_t>(life >> 32); }
bool is(uint64_t life, ExternalState value) { return static_cast<uint32_t>(life) == state(value); }
uint64_t number_of(uint32_t index, uint64_t life) { return static_cast<uint64_t>(generation_of(life)) << 32 | (index + 1); }

ExternalAllocation* table() noexcept {
  ExternalAllocation* slots = g_box.external.load(std::memory_order_acquire);
  if (__builtin_expect(slots != nullptr, 1)) return slots;
  // Two threads may both add one: the second stays unused.
  auto* made = static_cast<ExternalAllocation*>(add_region(RegionKind::kExternalAllocations, sizeof(ExternalAllocation), kExternalAllocations, 0, 0));
  if (made == nullptr) return nullptr;
  if (!g_box.external.compare_exchange_strong(slots, made, std::memory_order_acq_rel)) return slots;
  return made;
}

// Round robin, skipping live ones: of the freed ones, the slot that was taken longest ago is reused first.
bool claim(uint32_t& index, uint32_t& generation) {
  for (uint32_t tries = 0; tries < kExternalAllocations; tries++) {
    uint32_t at = cursor.fetch_add(1, std::memory_order_relaxed) % kExternalAllocations;
    std::atomic_ref key(keys[at].life);
    uint64_t seen = key.load(std::memory_order_relaxed);
    if (!is(seen, ExternalState::kEmpty) && !is(seen, ExternalState::kFreed)) continue;
    generation = generation_of(seen) + 1;
    // acquire: the fields must not be written before the slot is claimed
    if (!key.compare_exchange_strong(seen, life(generation, ExternalState::kBusy), std::memory_order_acquire)) continue;
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

// The end of a name is more useful than its beginning.
void set_file(ExternalAllocation& slot, const char* file) {
  size_t length = file != nullptr ? strlen(file) : 0, room = sizeof slot.file - 1, cut = length > room ? length - room : 0;
  if (cut != 0) slot.flags |= 2;
  memset(slot.file, 0, sizeof slot.file);
  if (length != 0) memcpy(slot.file, file + cut, length - cut);
}

// Its number; 0: there is no live one.
uint64_t find(uint64_t value, std::atomic<uint64_t> Key::* field) {
  uint32_t count = used.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; i++) {
    const std::atomic<uint64_t>& member = keys[i].*field;
    if (member.load(std::memory_order_relaxed) != value) continue;
    crashsafe::SeqNumber shown(keys[i].life);
    uint64_t seen = shown.begin_read();
    if (is(seen, ExternalState::kLive) && member.load(std::memory_order_relaxed) == value && shown.is_still(seen)) return number_of(i, seen);
  }
  return 0;
}

// State and generation of a slot in the recording, as one number.
static_assert(offsetof(ExternalAllocation, state) == 0 && offsetof(ExternalAllocation, generation) == 4 &&
              std::endian::native == std::endian::little);
crashsafe::SeqNumber<uint64_t> shown_in(ExternalAllocation& slot) { return crashsafe::SeqNumber(reinterpret_cast<uint64_t&>(slot)); }

}  // namespace

uint64_t external_allocated(const pytracer_external& birth) noexcept {
  ExternalAllocation* slots = table();
  uint32_t index = 0, generation = 0;
  if (slots == nullptr || !claim(index, generation)) {
    std::atomic_ref(g_box.header->foreign_dropped).fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  ThreadContext& context = this_thread();
  StorageLifetime begun{};
  ExternalAllocation made{};
  begun.base = birth.addr;
  begun.nbytes = birth.nbytes;
  begun.alloc_thread = context.index;
  begun.alloc_site_id = birth.site_id;
  begun.alloc_site_where = birth.site_where;
  begun.alloc_epoch = stamp(context);
  begun.alloc_sequence = context.sequence;
  begun.origin = birth.origin;
  begun.external = index + 1;
  memcpy(made.life, &begun, sizeof begun);
  made.state = state(ExternalState::kBusy);
  made.generation = generation;
  made.identity = birth.identity;
  made.file_offset = birth.file_offset;
  made.flags = birth.preexisting != 0 ? 1 : 0;
  set_file(made, birth.file);
  uint64_t live = life(generation, ExternalState::kLive);
  auto shown = shown_in(slots[index]);
  shown.hide(life(generation, ExternalState::kBusy));  // its fence keeps the members of the key below the claim, too
  crashsafe::copy_racing(slots[index], made);
  shown.publish(live);
  keys[index].addr.store(birth.addr, std::memory_order_relaxed);
  keys[index].identity.store(birth.identity, std::memory_order_relaxed);
  crashsafe::SeqNumber(keys[index].life).publish(live);
  return number_of(index, live);
}

void external_freed(uint64_t number, pytracer_detailed_call_site site) noexcept {
  uint32_t index = static_cast<uint32_t>(number) - 1, generation = static_cast<uint32_t>(number >> 32);
  ExternalAllocation* slots = g_box.external.load(std::memory_order_acquire);
  if (number == 0 || slots == nullptr || index >= kExternalAllocations) return;
  uint64_t live = life(generation, ExternalState::kLive);
  if (!std::atomic_ref(keys[index].life).compare_exchange_strong(live, life(generation, ExternalState::kBusy), std::memory_order_acquire)) return;
  ExternalAllocation& slot = slots[index];
  ThreadContext& context = this_thread();
  pytracer_call_site by = site();
  // It stays LIVE in the black box until its end is complete: a process that is killed here keeps it. Readers ignore the end of a live
  // one.
  auto set = [](auto& member, auto value) { std::atomic_ref(member).store(value, std::memory_order_relaxed); };
  StorageLifetime& ended = *reinterpret_cast<StorageLifetime*>(slot.life);
  set(ended.free_thread, context.index);
  set(ended.free_site_id, by.id);
  set(ended.free_site_where, by.where);
  set(ended.free_epoch, stamp(context));
  set(ended.free_sequence, context.sequence);
  uint64_t freed = life(generation, ExternalState::kFreed);
  shown_in(slot).publish(freed);
  crashsafe::SeqNumber(keys[index].life).publish(freed);
}

uint64_t external_of(uint64_t identity) noexcept { return identity != 0 ? find(identity, &Key::identity) : 0; }

bool external_known(uint64_t addr) noexcept { return find(addr, &Key::addr) != 0; }

void recheck_external_allocations() noexcept {
  ExternalAllocation* slots = g_box.external.load(std::memory_order_relaxed);
  if (slots == nullptr) return;
  // A later generation is the parent's, which continued during the copy. In private memory there is none.
  for (uint32_t i = 0; i < kExternalAllocations; i++) {
    uint32_t generation = generation_of(keys[i].life);
    if (slots[i].generation != generation || slots[i].state == state(ExternalState::kBusy)) slots[i].state = state(ExternalState::kEmpty);
    keys[i].life = life(generation, static_cast<ExternalState>(slots[i].state));
  }
}

}  // namespace pytracer::core
