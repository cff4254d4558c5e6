#include "core/tables/storage_table.h"

#include "core/core.h"
#include "core/file/journal.h"
#include "core/file/regions.h"
#include "core/tables/thread_context.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"

#include <algorithm>
#include <ctime>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint64_t kHash1 = 0x9E3779B97F4A7C15ull, kHash2 = 0xC2B2AE3D27D4EB4Full;
constexpr int kWindow1 = 16, kWindow2 = 64;             // the second hash matters more than a longer window
constexpr uint32_t kTickMask = 1023;                    // moving the epoch more often bounces one cache line between threads
constexpr uint32_t kGrowthLog2 = 4, kLargestLog2 = 22;  // a tier of 2^24 would be a file of 0.5 GiB
constexpr int kGrowthWaits = 1000;                      // of 0.1 ms
constexpr uint64_t kSizeMask = 0x0000ffffffffffffull;
constexpr uint32_t kHalf = kFreedPerThread / 2;

std::atomic<int64_t> inherited_live{0};
std::atomic<bool> growth_failed{false};
std::atomic_flag growing = ATOMIC_FLAG_INIT;

// Neighbours in memory are neighbours in the table: a heap hands out addresses in order, and each slot of a random hash would
// be a cache miss (measured: 60 -> 25 ns per record in a loop of tiny operators). Blocks of 256 KiB start at random places.
inline uint64_t first_slot(const Tier& tier, uint64_t addr) { return ((addr >> 6) + (((addr >> 18) * kHash1) >> tier.shift)) & tier.mask; }
// Where blocks overlap: anywhere, and on in steps of the golden ratio, which leave a crowded area. (A second window of neighbours
// lost 69 000 of 700 000 dense storages in 2^20 slots, this one none.)
inline uint64_t second_slot(const Tier& tier, uint64_t addr) { return ((addr >> 6) * kHash2) >> tier.shift; }
inline uint64_t second_step(const Tier& tier) { return kHash1 >> tier.shift | 1; }

bool add_tier(uint32_t log2_slots) {
  uint32_t index = g_box.tier_count.load(std::memory_order_acquire);
  if (index >= kTierLimit) return false;
  uint64_t slots = 1ull << log2_slots;
  void* at = add_region(RegionKind::kStorages, sizeof(LiveStorage), slots, 0, log2_slots);
  if (at == nullptr) return false;
  g_box.tiers[index] = {static_cast<LiveStorage*>(at), slots - 1, 64 - log2_slots, log2_slots};
  g_box.tier_count.store(index + 1, std::memory_order_release);
  g_box.newest.store(&g_box.tiers[index], std::memory_order_release);
  return true;
}

// Called once per 1024 records of a thread. One thread grows the table, the others continue with the old tier.
__attribute__((noinline, cold)) void on_tick(int64_t full_percent = 60) {
  tick();
  const Tier& tier = *g_box.newest.load(std::memory_order_acquire);
  int64_t live = live_storages() + inherited_live.load(std::memory_order_relaxed);
  if (live * 100 < static_cast<int64_t>(tier.mask + 1) * full_percent || growth_failed.load(std::memory_order_relaxed)) return;
  if (growing.test_and_set(std::memory_order_acquire)) return;
  if (g_box.newest.load(std::memory_order_acquire) == &tier && !add_tier(std::min(tier.log2_slots + kGrowthLog2, kLargestLog2))) {
    growth_failed.store(true, std::memory_order_relaxed);
    note(CoreNote::kStorageTableFull, 0, tier.mask + 1);
  }
  growing.clear(std::memory_order_release);
}

inline uint32_t epoch_now() { return std::atomic_ref(g_box.header->epoch).load(std::memory_order_relaxed); }
inline bool tick_is_due(const ThreadContext& context) { return ((context.sequence + 1) & kTickMask) == 0; }

uint32_t stamp(ThreadContext& context) {
  if ((++context.sequence & kTickMask) == 0) on_tick();
  return epoch_now();
}

struct Birth {
  uint64_t addr, nbytes;
  pytracer_call_site site;
  uint32_t origin;
};

// Its call site, and a more detailed one for large storages.
struct Death {
  uint64_t addr;
  pytracer_call_site site;
  pytracer_detailed_call_site in_detail;
};

// No SeqSlot: the table is searched by the key, and threads compete for slots. The key goes EMPTY -> BUSY -> LIVE -> EMPTY and differs for
// each allocation, since it has 16 bits of the sequence: readers use it as a SeqNumber. No fence after BUSY: what a claim reads is what
// all others see or have seen (x86 and ARMv8 are multi-copy atomic), so that no reader sees our fields below an earlier LIVE. The C++
// memory model demands a release fence, which would cost ARM a barrier for each storage.

// acquire: the fields must not be written before the slot is claimed
inline bool claim(LiveStorage& slot, uint64_t seen, uint64_t addr) {
  return std::atomic_ref(slot.key).compare_exchange_strong(seen, addr | kKeyBusy, std::memory_order_acquire, std::memory_order_relaxed);
}

inline void fill(LiveStorage& slot, const ThreadContext& context, const Birth& birth, uint32_t epoch) {
  using crashsafe::store_hidden;
  const uint32_t sequence = context.sequence;  // once: threads beyond the limit share a context, and the key must agree with the field
  store_hidden(slot.size_thread, birth.nbytes | static_cast<uint64_t>(context.index) << 48);
  store_hidden(slot.site_id, birth.site.id);
  store_hidden(slot.site_where, birth.site.where);
  store_hidden(slot.epoch, epoch);
  store_hidden(slot.sequence, sequence);
  // release: a reader that sees LIVE sees the fields
  std::atomic_ref(slot.key).store(
      static_cast<uint64_t>(static_cast<uint16_t>(sequence)) << 48 | birth.addr | birth.origin << kKeyOriginShift | kKeyLive,
      std::memory_order_release);
}

bool put(const Tier& tier, uint64_t at, uint64_t step, int window, ThreadContext& context, const Birth& birth, uint32_t epoch) {
  for (int i = 0; i < window; i++) {
    LiveStorage& slot = tier.slots[(at + static_cast<uint64_t>(i) * step) & tier.mask];
    uint64_t seen = std::atomic_ref(slot.key).load(std::memory_order_relaxed);
    if (seen != kKeyEmpty) {
      if ((seen & (kKeyAddrMask | kKeyStateMask)) != (birth.addr | kKeyLive)) continue;
      std::atomic_ref(g_box.header->stale_storages).fetch_add(1, std::memory_order_relaxed);  // its free was missed: the slot is taken over
    }
    if (!claim(slot, seen, birth.addr)) continue;
    fill(slot, context, birth, epoch);
    return true;
  }
  return false;
}

// The slow path: a crowded slot, the first storage of a thread, and ticks.
__attribute__((noinline)) void allocated_slow_path(Birth birth) {
  if (g_box.newest.load(std::memory_order_acquire) == nullptr) return;
  ThreadContext& context = this_thread();
  uint32_t epoch = stamp(context);
  context.head->alloc_count++;
  const Tier& tier = *g_box.newest.load(std::memory_order_acquire);
  if (put(tier, first_slot(tier, birth.addr), 1, kWindow1, context, birth, epoch)) return;
  if (put(tier, second_slot(tier, birth.addr), second_step(tier), kWindow2, context, birth, epoch)) return;
  // Crowded here although there is room elsewhere: a larger tier helps. When there is none, the epoch must not advance each time.
  if (!growth_failed.load(std::memory_order_relaxed)) on_tick(20);
  for (int waits = 0; waits < kGrowthWaits && growing.test(std::memory_order_acquire); waits++) {
    timespec t{0, 100'000};  // another thread adds it: a moment, once per tier, rather than a lost storage
    nanosleep(&t, nullptr);
  }
  const Tier& next = *g_box.newest.load(std::memory_order_acquire);
  if (&next != &tier && (put(next, first_slot(next, birth.addr), 1, kWindow1, context, birth, epoch) ||
                         put(next, second_slot(next, birth.addr), second_step(next), kWindow2, context, birth, epoch)))
    return;
  std::atomic_ref(g_box.header->storages_dropped).fetch_add(1, std::memory_order_relaxed);
}

inline uint64_t size_of(const LiveStorage& slot) { return slot.size_thread & kSizeMask; }
// Only large blocks are unmapped and fault when they are used after free: they have a ring of their own.
inline bool is_large(const LiveStorage& slot) { return size_of(slot) >= kLargeStorageBytes; }

inline void add_to_freed(const ThreadContext& context, StorageLifetime* freed, uint64_t& count, const LiveStorage& slot, uint64_t key,
                         pytracer_call_site site, uint32_t epoch) {
  crashsafe::Ring<StorageLifetime, kHalf>(freed).write(++count, [&](StorageLifetime& lifetime) {
    lifetime.base = key & kKeyAddrMask;
    lifetime.nbytes = size_of(slot);
    lifetime.alloc_thread = static_cast<uint16_t>(slot.size_thread >> 48);
    lifetime.free_thread = context.index;
    lifetime.alloc_site_id = slot.site_id;
    lifetime.alloc_site_where = slot.site_where;
    lifetime.free_site_id = site.id;
    lifetime.free_site_where = site.where;
    lifetime.alloc_epoch = slot.epoch;
    lifetime.alloc_sequence = slot.sequence;
    lifetime.free_epoch = epoch;
    lifetime.free_sequence = context.sequence;
    lifetime.origin = static_cast<uint32_t>(key >> kKeyOriginShift & kKeyOriginMask);
  });
}

inline bool is_at(uint64_t key, uint64_t addr) { return (key & (kKeyAddrMask | kKeyStateMask)) == (addr | kKeyLive); }

// After the record of the freed storage: killed in between, the storage is in both.
inline void give_up(LiveStorage& slot) { std::atomic_ref(slot.key).store(kKeyEmpty, std::memory_order_release); }

bool take(const Tier& tier, uint64_t at, uint64_t step, int window, ThreadContext& context, const Death& death) {
  for (int i = 0; i < window; i++) {
    LiveStorage& slot = tier.slots[(at + static_cast<uint64_t>(i) * step) & tier.mask];
    uint64_t key = std::atomic_ref(slot.key).load(std::memory_order_relaxed);
    if (!is_at(key, death.addr)) continue;
    uint32_t epoch = stamp(context);
    if (is_large(slot))
      add_to_freed(context, context.large_freed, context.head->large_freed_count, slot, key,
                   death.in_detail != nullptr ? death.in_detail() : death.site, epoch);
    else
      add_to_freed(context, context.small_freed, context.head->small_freed_count, slot, key, death.site, epoch);
    give_up(slot);
    return true;
  }
  return false;
}

__attribute__((noinline)) void freed_slow_path(Death death) {
  if (g_box.newest.load(std::memory_order_acquire) == nullptr) return;
  ThreadContext& context = this_thread();
  for (int t = static_cast<int>(g_box.tier_count.load(std::memory_order_acquire)) - 1; t >= 0; t--) {
    const Tier& tier = g_box.tiers[t];
    if (take(tier, first_slot(tier, death.addr), 1, kWindow1, context, death) ||
        take(tier, second_slot(tier, death.addr), second_step(tier), kWindow2, context, death)) {
      context.head->free_count++;
      return;
    }
  }
  std::atomic_ref(g_box.header->unknown_frees).fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

bool open_storage_table() noexcept { return g_box.newest.load(std::memory_order_acquire) != nullptr || add_tier(kStorageSlotsLog2); }

bool storage_known(const void* address) noexcept {
  uint64_t addr = reinterpret_cast<uint64_t>(address) & kKeyAddrMask;
  auto in = [addr](const Tier& tier, uint64_t at, uint64_t step, int window) {
    for (int i = 0; i < window; i++) {
      uint64_t key = std::atomic_ref(tier.slots[(at + static_cast<uint64_t>(i) * step) & tier.mask].key).load(std::memory_order_relaxed);
      if (is_at(key, addr)) return true;
    }
    return false;
  };
  for (uint32_t t = g_box.tier_count.load(std::memory_order_acquire); t > 0; t--) {
    const Tier& tier = g_box.tiers[t - 1];
    if (in(tier, first_slot(tier, addr), 1, kWindow1) || in(tier, second_slot(tier, addr), second_step(tier), kWindow2)) return true;
  }
  return false;
}

void recount_storages() noexcept {
  int64_t live = 0;
  for (uint32_t t = 0; t < g_box.tier_count.load(std::memory_order_relaxed); t++)
    for (uint64_t i = 0; i <= g_box.tiers[t].mask; i++) live += (g_box.tiers[t].slots[i].key & kKeyStateMask) == kKeyLive;
  inherited_live.store(live, std::memory_order_relaxed);
  growing.clear(std::memory_order_relaxed);  // its holder does not exist in the child
  growth_failed.store(false, std::memory_order_relaxed);
}

}  // namespace pytracer::core

using namespace pytracer;
using namespace pytracer::core;

// Nearly always the thread is known, no tick is due and the first slot is free: everything else is kept out of the cache lines of
// this path, and is called last, so that the common case saves no registers.
__attribute__((hot)) void pytracer_storage_allocated(const void* address, size_t nbytes, uint32_t origin, pytracer_call_site site) {
  uint64_t addr = reinterpret_cast<uint64_t>(address) & kKeyAddrMask;
  const Tier* tier = g_box.newest.load(std::memory_order_acquire);
  ThreadContext* context = t_context;
  if (__builtin_expect(tier == nullptr || context == nullptr || tick_is_due(*context), 0)) return allocated_slow_path({addr, nbytes, site, origin});
  LiveStorage& slot = tier->slots[first_slot(*tier, addr)];
  if (__builtin_expect(!claim(slot, kKeyEmpty, addr), 0)) return allocated_slow_path({addr, nbytes, site, origin});
  context->sequence++;
  context->head->alloc_count++;
  fill(slot, *context, {addr, nbytes, site, origin}, epoch_now());
}

// Before the memory is released: afterwards another thread may get the address while our entry is still live.
__attribute__((hot)) void pytracer_storage_freed(const void* address, pytracer_call_site site, pytracer_detailed_call_site in_detail) {
  uint64_t addr = reinterpret_cast<uint64_t>(address) & kKeyAddrMask;
  const Tier* tier = g_box.newest.load(std::memory_order_acquire);
  ThreadContext* context = t_context;
  if (__builtin_expect(tier == nullptr || context == nullptr || tick_is_due(*context), 0)) return freed_slow_path({addr, site, in_detail});
  LiveStorage& slot = tier->slots[first_slot(*tier, addr)];
  uint64_t key = std::atomic_ref(slot.key).load(std::memory_order_relaxed);
  if (__builtin_expect(!is_at(key, addr) || is_large(slot), 0)) return freed_slow_path({addr, site, in_detail});
  context->sequence++;
  context->head->free_count++;
  add_to_freed(*context, context->small_freed, context->head->small_freed_count, slot, key, site, epoch_now());
  give_up(slot);
}
