#include "crashsafe/memory/storage_lookup.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"

#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint64_t kSizeMask = 0x0000ffffffffffffull;
constexpr uint32_t kLargestTier = 19;
enum Kind : uint32_t { kLiveCovering = 1, kLiveBelow, kLiveAbove, kFreedCovering, kFreedBelow, kFreedAbove, kKinds };

struct Best {
  bool set = false;
  uint32_t thread = 0;
  StorageLifetime life{};
};

// Keeps the nearest on each side, and of several storages at one address the latest.
void consider(Best (&best)[kKinds], uint64_t addr, Kind covering, const StorageLifetime& life, uint32_t thread) {
  bool above = life.base > addr, inside = !above && addr - life.base < life.nbytes;
  Best& slot = best[inside ? covering : above ? covering + 2 : covering + 1];
  if (slot.set) {
    if (inside && covering == kLiveCovering && life.external != 0 && slot.life.external == 0) return;  // the owner, not a borrower of its memory
    uint64_t old_end = slot.life.base + slot.life.nbytes, end = life.base + life.nbytes;
    bool nearer = inside ? is_later(life, slot.life) : above ? life.base < slot.life.base : end > old_end;
    bool same = !inside && (above ? life.base == slot.life.base : end == old_end);
    if (!nearer && !(same && is_later(life, slot.life))) return;
  }
  slot = {true, thread, life};
}

void consider_external(Best (&best)[kKinds], uint64_t addr) {
  ExternalAllocation* slots = g_box.external.load(std::memory_order_acquire);
  for (uint32_t i = 0; slots != nullptr && i < kExternalAllocations; i++) {
    SeqNumber shown(reinterpret_cast<uint64_t&>(slots[i]));  // state and generation
    uint64_t before = shown.begin_read();
    auto state = static_cast<ExternalState>(static_cast<uint32_t>(before));
    bool live = state == ExternalState::kLive;
    if (!live && state != ExternalState::kFreed) continue;
    StorageLifetime life;
    copy_racing(life, *reinterpret_cast<const StorageLifetime*>(slots[i].life));
    if (!shown.is_still(before)) continue;  // changed under us
    if (live) {                             // its end may be half written
      life.free_epoch = life.alloc_epoch;
      life.free_sequence = life.alloc_sequence;
    }
    consider(best, addr, live ? kLiveCovering : kFreedCovering, life, live ? life.alloc_thread : life.free_thread);
  }
}

}  // namespace

bool is_later(const StorageLifetime& a, const StorageLifetime& b) noexcept {
  int32_t epochs = static_cast<int32_t>(a.free_epoch - b.free_epoch);
  return epochs != 0 ? epochs > 0 : static_cast<int32_t>(a.free_sequence - b.free_sequence) > 0;
}

StorageLifetime lifetime_of(const LiveStorage& slot, uint64_t key) noexcept {
  StorageLifetime life{};
  life.base = key & kKeyAddrMask;
  life.nbytes = slot.size_thread & kSizeMask;
  life.alloc_thread = static_cast<uint16_t>(slot.size_thread >> 48);
  life.alloc_site_id = slot.site_id;
  life.alloc_site_where = slot.site_where;
  life.alloc_epoch = life.free_epoch = slot.epoch;
  life.alloc_sequence = life.free_sequence = slot.sequence;
  life.origin = static_cast<uint32_t>(key >> kKeyOriginShift & kKeyOriginMask);
  return life;
}

void write_storage_hits(uint64_t addr) noexcept {
  Best best[kKinds];
  for (uint32_t t = 0; t < g_box.tier_count.load(std::memory_order_acquire); t++) {
    const Tier& tier = g_box.tiers[t];
    if (tier.log2_slots > kLargestTier) return;
    for (uint64_t i = 0; i <= tier.mask; i++) {
      SeqNumber key(tier.slots[i].key);
      uint64_t before = key.begin_read();
      if ((before & kKeyStateMask) != kKeyLive) continue;
      LiveStorage slot;
      copy_racing(slot, tier.slots[i]);
      if (!key.is_still(before)) continue;  // changed under us
      StorageLifetime life = lifetime_of(slot, before);
      consider(best, addr, kLiveCovering, life, life.alloc_thread);
    }
  }
  for (uint32_t chunk = 0; chunk < g_box.chunk_count.load(std::memory_order_acquire); chunk++)
    for (uint32_t i = 0; i < kThreadsPerChunk * kFreedPerThread; i++) {
      StorageLifetime life;
      if (SeqSlot(g_box.freed[chunk][i]).read(life) == 0) continue;
      consider(best, addr, kFreedCovering, life, chunk * kThreadsPerChunk + i / kFreedPerThread);
    }
  consider_external(best, addr);
  CrashHeader& crash = *g_box.crash.data;
  for (uint32_t kind = kLiveCovering; kind < kKinds; kind++) {
    if (!best[kind].set || crash.hit_count >= g_box.hits.items) continue;
    StorageHit& hit = g_box.hits.data[crash.hit_count];
    hit = {kind, best[kind].thread, 0, {}};
    memcpy(hit.lifetime, &best[kind].life, sizeof hit.lifetime);
    crash.hit_count++;
  }
}

}  // namespace pytracer::crashsafe
