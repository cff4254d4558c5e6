#include "crashsafe/memory/heap_damage.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/memory/storage_lookup.h"
#include "crashsafe/platform/safe_read.h"

#include <csignal>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

// glibc 2.17 to 2.41, malloc/malloc.c: the word before a block is its size, a multiple of 16, with three flags. The next block begins there.
constexpr uint64_t kWord = 8, kHeader = 2 * kWord, kFlags = 7, kMmapped = 2, kUnusedBit = 8, kLeastChunk = 32;
constexpr uint64_t kSpare = 64;  // what posix_memalign() may leave behind the block, and more
constexpr uint32_t kLargestChunkLog2 = 40;
constexpr uint64_t kOddOfSound = 4;
constexpr uint64_t kSizeMask = 0x0000ffffffffffffull;
constexpr uint32_t kLargestTier = 19, kMost = 4;
enum Kind : uint32_t { kOverrun = 7, kOverrunFreed, kBefore, kBeforeFreed };  // StorageHit.kind

bool is_malloc_size(uint64_t word) {
  if ((word & kUnusedBit) != 0 || word >> kLargestChunkLog2 != 0) return false;
  return (word & ~kFlags) >= kLeastChunk || word == 0x11 || word == 1;  // the last two: where an arena ends
}

// What malloc() notes on both sides of a block; `word`: what is overwritten.
enum class Notes { kUnknown, kOther, kSound, kBehind, kBefore };

Notes notes_of(uint64_t base, uint64_t nbytes, uint64_t& word) {
  uint64_t own = 0;
  if (nbytes == 0 || base % kHeader != 0 || !read_value(own, base - kWord)) return Notes::kUnknown;
  if (!is_malloc_size(own)) {
    word = own;
    return Notes::kBefore;
  }
  if ((own & kMmapped) != 0) return Notes::kUnknown;
  uint64_t size = own & ~kFlags;
  if (size < nbytes + kWord || size > nbytes + kWord + kSpare) return Notes::kOther;  // of another allocator, or overwritten itself
  if (!read_value(word, base - kHeader + size + kWord)) return Notes::kUnknown;
  return is_malloc_size(word) ? Notes::kSound : Notes::kBehind;
}

void add(Kind kind, const StorageLifetime& life, uint32_t thread, uint64_t word) {
  CrashHeader& crash = *g_box.crash.data;
  if (crash.hit_count >= g_box.hits.items) return;
  StorageHit& hit = g_box.hits.data[crash.hit_count];
  hit = {kind, thread, word, {}};
  memcpy(hit.lifetime, &life, sizeof life);
  crash.hit_count++;
}

// free() looks at the next block's size first, and the end of a storage is recorded before it is called: when this thread dies in there, the
// last storage that it freed is the one.
void add_last_freed() {
  const CrashHeader& crash = *g_box.crash.data;
  if (crash.thread_index < 0) return;
  auto index = static_cast<uint32_t>(crash.thread_index);
  if (index / kThreadsPerChunk >= g_box.chunk_count.load(std::memory_order_acquire)) return;
  bool found = false;
  StorageLifetime last{};
  for (uint32_t i = 0; i < kFreedPerThread; i++) {
    StorageLifetime life;
    if (SeqSlot(g_box.freed[index / kThreadsPerChunk][index % kThreadsPerChunk * kFreedPerThread + i]).read(life) == 0) continue;
    if (!found || is_later(life, last)) last = life;
    found = true;
  }
  uint64_t word = 0;
  if (!found || last.external != 0) return;
  Notes notes = notes_of(last.base, last.nbytes, word);
  if (notes == Notes::kBehind) add(kOverrunFreed, last, index, word);
  if (notes == Notes::kBefore) add(kBeforeFreed, last, index, word);
}

}  // namespace

void write_overrun_storages() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  uint32_t before = crash.hit_count;
  uint64_t sound = 0, odd = 0;
  StorageLifetime first_before{};  // often what lies behind an overrun block that is no storage, or the victim of a negative index
  uint64_t word_before = 0;
  for (uint32_t t = 0; t < g_box.tier_count.load(std::memory_order_acquire); t++) {
    const Tier& tier = g_box.tiers[t];
    if (tier.log2_slots > kLargestTier) break;
    for (uint64_t i = 0; i <= tier.mask; i++) {
      SeqNumber key(tier.slots[i].key);
      uint64_t shown = key.begin_read();
      if ((shown & kKeyStateMask) != kKeyLive) continue;
      LiveStorage slot;
      copy_racing(slot, tier.slots[i]);
      if (!key.is_still(shown)) continue;  // changed under us
      uint64_t word = 0;
      Notes notes = notes_of(shown & kKeyAddrMask, slot.size_thread & kSizeMask, word);
      if (notes == Notes::kSound) sound++;
      if (notes == Notes::kOther || notes == Notes::kBefore) odd++;
      if (notes != Notes::kBehind && notes != Notes::kBefore) continue;
      StorageLifetime life = lifetime_of(slot, shown);
      if (!key.is_still(shown) || life.origin != static_cast<uint32_t>(Origin::kCpuAllocator)) continue;  // freed by another thread meanwhile
      if (notes == Notes::kBehind && crash.hit_count - before < kMost) add(kOverrun, life, life.alloc_thread, word);
      if (notes == Notes::kBefore && (first_before.base == 0 || life.base < first_before.base)) {
        first_before = life;
        word_before = word;
      }
    }
  }
  if (crash.hit_count == before && first_before.base != 0) add(kBefore, first_before, first_before.alloc_thread, word_before);
  if (crash.signal == SIGABRT) add_last_freed();
  // Of another allocator hardly any storage has such notes, and those by chance; a long overrun takes those of a few neighbours.
  if (sound * kOddOfSound < odd || sound == 0) crash.hit_count = before;
}

}  // namespace pytracer::crashsafe
