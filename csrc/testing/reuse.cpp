// Test-only: slots that are reused while another thread is about to change them.
#include "testing/testing.h"

#include <atomic>

using namespace pytracer::blackbox;
using namespace testing;

namespace {

template <class Item>
Item* region(RegionKind kind) {
  char* base = pytracer_create_black_box() != 0 ? mapped_at(0) : nullptr;
  auto* header = reinterpret_cast<FileHeader*>(base);
  auto* regions = reinterpret_cast<RegionEntry*>(base + sizeof(FileHeader));
  for (uint32_t i = 0; base != nullptr && i < header->region_count; i++)
    if (regions[i].kind == static_cast<uint32_t>(kind)) return reinterpret_cast<Item*>(mapped_at(regions[i].offset));
  return nullptr;
}

// In every second lap of the ring, collectives end; in the others, none does.
bool ends(uint64_t number) { return (number - 1) / kCollectives % 2 == 0; }

pytracer_call_site nobody() { return {0, 0}; }

}  // namespace

/// One thread calls collectives; others end those whose slots are about to be reused. Returns how many ended although no thread ended them.
EXPORT uint64_t testing_overtake_collectives(uint32_t threads, uint64_t calls) {
  pytracer_open_collectives();
  auto* slots = region<CollectiveSlot>(RegionKind::kCollectives);
  std::atomic<uint64_t> newest{0}, wrong{0};
  std::atomic<bool> done{false};
  on_threads(threads + 1, [&](uint32_t t) {
    if (t != 0) {
      while (!done) {
        uint64_t last = newest, oldest = last > kCollectives ? last - kCollectives + 1 : 1;
        if (ends(oldest)) pytracer_collective_reached(oldest, static_cast<uint32_t>(CollectiveState::kCompleted));
      }
      return;
    }
    CollectiveSlot slot{};
    for (uint64_t n = 1; n <= calls; n++) {
      CollectiveSlot& before = slots[(n - 1) % kCollectives];
      if (n > kCollectives && !ends(n - kCollectives) && std::atomic_ref(before.state) != static_cast<uint32_t>(CollectiveState::kScheduled)) wrong++;
      newest = pytracer_collective_scheduled(&slot);
    }
    done = true;
  });
  return wrong;
}

/// One thread records external allocations and their ends; others free numbers that are no longer valid. All but one slot are
/// taken, so that the next storage gets the same one. Returns how many storages were gone before their end.
EXPORT uint64_t testing_free_twice(uint32_t threads, uint64_t lives) {
  pytracer_external birth{};
  for (uint64_t i = 1; i < kExternalAllocations; i++) {
    birth.addr = birth.identity = i << 20;
    birth.nbytes = 4096;
    pytracer_external_allocated(&birth);
  }
  std::atomic<uint64_t> freed{0}, wrong{0};
  std::atomic<bool> done{false};
  on_threads(threads + 1, [&](uint32_t t) {
    while (t != 0 && !done) pytracer_external_freed(freed, nobody);
    if (t != 0) return;
    pytracer_external life{};
    for (uint64_t n = 0; n < lives; n++) {
      life.addr = life.identity = (kExternalAllocations + n) << 20;
      life.nbytes = 4096;
      uint64_t number = pytracer_external_allocated(&life);
      freed = number;  // too early, for the others
      while (pytracer_external_of(life.identity) == number) std::this_thread::yield();
      number = pytracer_external_allocated(&life);
      for (int looks = 0; looks < 20; looks++)
        if (pytracer_external_of(life.identity) != number) {
          wrong++;
          break;
        }
      pytracer_external_freed(number, nobody);
    }
    done = true;
  });
  return wrong;
}
