// Test-only: storages, records and journal entries at speed.
//
// Storages here are numbers, not memory. Everything about an allocation follows from its base address and size (see `mix`), so that a
// reader can detect parts of two that were mixed.
#include "testing/testing.h"

#include <atomic>

using namespace pytracer::blackbox;
using namespace testing;

namespace {

uint32_t mix(uint64_t base, uint64_t nbytes) { return static_cast<uint32_t>((base >> 6) * 2654435761ull ^ nbytes * 40503ull) & 0x7fffffff; }

uint32_t node = 0;  // journal id that all lives refer to

uint64_t base_of(uint32_t thread, uint64_t slot, bool large) { return (0x100ull + thread) << 32 | (large ? 1ull << 31 : 0) | slot << 6; }
// Small sizes hold the thread and the life modulo 8000, large ones the whole life.
uint64_t size_of(uint32_t thread, uint64_t life, bool large) {
  return large ? 1ull << 40 | life << 4 | thread % 16 : 1 + life % 8000 * 16 + thread % 16;
}

void allocate(uint64_t base, uint64_t nbytes) { pytracer_storage_allocated(reinterpret_cast<void*>(base), nbytes, 0, {node, mix(base, nbytes)}); }
void release(uint64_t base, uint64_t nbytes) { pytracer_storage_freed(reinterpret_cast<void*>(base), {node, mix(base, nbytes + 1)}, nullptr); }

std::vector<std::thread> background;
std::atomic<bool> stopping{false};

}  // namespace

/// Call once after recording has started: names the node that all lives refer to.
EXPORT void testing_begin() {
  static const char name[] = "testing::Node";
  node = pytracer_journal(static_cast<uint32_t>(EntryKind::kNode), name, sizeof name);
  pytracer_open_storages();
}

/// Each thread allocates `count` storages that stay.
EXPORT void testing_hold(uint32_t threads, uint32_t first_thread, uint64_t count, int large) {
  on_threads(threads, [=](uint32_t t) {
    for (uint64_t i = 0; i < count; i++) allocate(base_of(first_thread + t, i, large), size_of(first_thread + t, i, large));
  });
}

/// Each thread frees what testing_hold of the same arguments allocated.
EXPORT void testing_let_go(uint32_t threads, uint32_t first_thread, uint64_t count, int large) {
  on_threads(threads, [=](uint32_t t) {
    for (uint64_t i = 0; i < count; i++) release(base_of(first_thread + t, i, large), size_of(first_thread + t, i, large));
  });
}

/// Each thread allocates and frees `lives` storages in turn, at `slots` addresses of its own; all lives end.
EXPORT void testing_churn(uint32_t threads, uint64_t lives, uint32_t slots, int large) {
  on_threads(threads, [=](uint32_t t) {
    for (uint64_t n = 0; n < lives; n++) {
      uint64_t base = base_of(t, n % slots, large), nbytes = size_of(t, n, large);
      allocate(base, nbytes);
      release(base, nbytes);
    }
  });
}

/// One thread allocates, another one frees.
EXPORT void testing_hand_over(uint64_t lives) {
  std::atomic<uint64_t> made{0}, ended{0};
  on_threads(2, [&](uint32_t t) {
    for (uint64_t n = 0; n < lives; n++) {
      uint64_t base = base_of(0, n % 64, true), nbytes = size_of(0, n, true);
      if (t == 0) {
        while (n - ended.load(std::memory_order_acquire) >= 64) std::this_thread::yield();
        allocate(base, nbytes);
        made.store(n + 1, std::memory_order_release);
      } else {
        while (made.load(std::memory_order_acquire) <= n) std::this_thread::yield();
        release(base, nbytes);
        ended.store(n + 1, std::memory_order_release);
      }
    }
  });
}

EXPORT void testing_allocate(uint64_t base, uint64_t nbytes) { allocate(base, nbytes); }
EXPORT void testing_release(uint64_t base, uint64_t nbytes) { release(base, nbytes); }

/// Each thread writes `count` marks "thread n"; all threads live until the last one has begun.
EXPORT void testing_marks(uint32_t threads, uint64_t count) {
  std::barrier end(threads);
  on_threads(threads, [&](uint32_t t) {
    for (uint64_t n = 0; n < count; n++) mark(t, n);
    end.arrive_and_wait();
  });
}

/// Threads of a pool that all begin at once while the table of storages grows: each holds storages, each writes a mark.
EXPORT void testing_burst(uint32_t threads, uint64_t storages) {
  std::barrier end(threads);
  on_threads(threads, [&](uint32_t t) {
    for (uint64_t i = 0; i < storages; i++) allocate(base_of(t, i, false), size_of(t, i, false));
    mark(t, 0);
    end.arrive_and_wait();
  });
}

/// Threads one after the other; each writes one mark.
EXPORT void testing_threads_in_turn(uint32_t count) {
  for (uint32_t t = 0; t < count; t++) std::thread([=] { mark(t, 0); }).join();
}

/// Each thread appends `count` notes "thread n ..." of `nbytes`; `ids` holds threads * count results.
EXPORT void testing_journal(uint32_t threads, uint32_t count, uint32_t nbytes, uint32_t* ids) {
  on_threads(threads, [=](uint32_t t) {
    std::string text;
    for (uint32_t n = 0; n < count; n++) {
      text = std::to_string(t) + " " + std::to_string(n) + " ";
      text.resize(nbytes, static_cast<char>('a' + t));
      ids[t * count + n] = pytracer_journal(static_cast<uint32_t>(EntryKind::kNote), text.data(), text.size());
    }
  });
}

/// Threads that record storages, marks and now and then a note, until testing_stop or the end.
EXPORT void testing_background(uint32_t threads, uint32_t slots) {
  for (uint32_t t = 0; t < threads; t++)
    background.emplace_back([=] {
      for (uint64_t n = 0; !stopping.load(std::memory_order_relaxed); n++) {
        bool large = n / slots % 2 != 0;  // half of the addresses live, half are free, at any time
        uint64_t slot = n % slots;
        if (n >= slots) {
          bool old_large = (n - slots) / slots % 2 != 0;
          release(base_of(t, slot, old_large), size_of(t, n - slots, old_large));
        }
        allocate(base_of(t, slot, large), size_of(t, n, large));
        if (n % 4 == 0) mark(t, n);
        if (n % 4096 == 0) {
          std::string text = std::to_string(t) + " " + std::to_string(n) + " ";
          text.resize(24 + n / 4096 % 40, 'x');
          pytracer_journal(static_cast<uint32_t>(EntryKind::kNote), text.data(), text.size());
        }
      }
    });
}
EXPORT void testing_stop() {
  stopping = true;
  for (auto& thread : background) thread.join();
  background.clear();
}

/// In a forked child, where the background threads do not exist.
EXPORT void testing_forget_background() {
  for (auto& thread : background) thread.detach();
  background.clear();
}
