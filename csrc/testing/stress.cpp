// Test-only: one program in which real threads work on everything that is published without locks, while others read it as the crash
// handler does. Built under the sanitizers (make test-tsan, make test-asan), with the core's sources in it.
//
//     stress DIRECTORY ROUNDS
//
// Ends with 1 when a reader saw parts of two items.
#include "core/core.h"
#include "core/core_cuda.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/memory/storage_lookup.h"
#include "crashsafe/signals/actions.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

using namespace pytracer;
using namespace pytracer::blackbox;

namespace {

std::atomic<uint64_t> wrong{0};
std::atomic<bool> done{false};
uint64_t rounds = 0;

void expect(bool right, const char* what) {
  if (!right && wrong.fetch_add(1) < 10) fprintf(stderr, "stress: %s\n", what);
}

// ---- slots and rings of our own ----

struct Item {
  uint32_t order, same;
  uint64_t words[6];
};

constexpr uint32_t kItems = 4;
Item items[kItems] = {};

void write_items() {
  for (uint64_t n = 1; n <= rounds * 16; n++)
    crashsafe::Ring<Item, kItems>(items).write(n, [n](Item& item) {
      item.same = static_cast<uint32_t>(n);
      for (uint64_t& word : item.words) word = n;
    });
}

void read_items() {
  for (uint64_t reads = 0; !done.load(std::memory_order_relaxed); reads++) {
    Item copy{};
    uint32_t number = crashsafe::SeqSlot(items[reads % kItems]).read(copy);
    if (number == 0) continue;
    bool whole = copy.same == number && (number - 1) % kItems == reads % kItems;
    for (uint64_t word : copy.words) whole = whole && word == number;
    expect(whole, "a slot had parts of two items");
  }
}

// ---- storages: call sites follow from address and size ----

constexpr uint64_t kSlots = 64;

uint64_t addr_of(uint32_t thread, uint64_t n, bool large) { return (0x100ull + thread) << 32 | (large ? 1ull << 31 : 0) | n % kSlots << 6; }
uint32_t check_of(uint64_t addr, uint64_t nbytes) { return static_cast<uint32_t>((addr >> 6) * 2654435761ull ^ nbytes * 40503ull); }

void churn(uint32_t thread) {
  for (uint64_t n = 0; n < rounds * 4; n++) {
    bool large = n / kSlots % 2 != 0;
    uint64_t addr = addr_of(thread, n, large), nbytes = (large ? 1ull << 24 : 1) + n % 4096;
    auto* at = reinterpret_cast<void*>(addr);
    pytracer_storage_allocated(at, nbytes, 0, {1, check_of(addr, nbytes)});
    pytracer_storage_freed(at, {1, check_of(addr, nbytes + 1)}, nullptr);
  }
}

void check(const StorageHit& hit) {
  StorageLifetime life;
  memcpy(&life, hit.lifetime, sizeof life);
  if (life.external != 0) return expect(life.alloc_site_where == check_of(life.base, life.nbytes), "a foreign storage had parts of two lives");
  bool ended = hit.kind > 3;
  expect(life.alloc_site_where == check_of(life.base, life.nbytes) && (!ended || life.free_site_where == check_of(life.base, life.nbytes + 1)),
         "a storage had parts of two lives");
}

void look_up() {
  for (uint64_t n = 0; !done.load(std::memory_order_relaxed); n++) {
    g_box.crash.data->hit_count = 0;
    crashsafe::write_storage_hits(addr_of(n % 2, n * 7, n % 3 == 0) + 1);
    for (uint32_t i = 0; i < g_box.crash.data->hit_count; i++) check(g_box.hits.data[i]);
  }
}

// ---- external allocations: numbers that are freed twice ----

std::atomic<uint64_t> last_number{0};
pytracer_call_site nobody() { return {0, 0}; }

void foreign(uint32_t thread) {
  for (uint64_t n = 0; n < rounds; n++) {
    pytracer_external birth{};
    birth.addr = birth.identity = (0x800ull + thread) << 32 | n << 12;
    birth.nbytes = 4096;
    birth.file = n % 2 != 0 ? "a file" : nullptr;
    birth.site_where = check_of(birth.addr, birth.nbytes);
    uint64_t number = pytracer_external_allocated(&birth);
    expect(pytracer_external_of(birth.identity) == number, "a foreign storage was gone before its end");
    pytracer_external_freed(number, nobody);
    last_number = number;
  }
}
void free_again() {
  while (!done.load(std::memory_order_relaxed)) pytracer_external_freed(last_number, nobody);
}

// ---- collectives ----

std::atomic<uint64_t> last_collective{0};

void call_collectives() {
  CollectiveSlot slot{};
  for (uint64_t n = 1; n <= rounds; n++) {
    slot.sequence_nr = n;
    uint64_t number = pytracer_collective_scheduled(&slot);
    last_collective = number;
    pytracer_collective_returned(number);
    if (n % 2 != 0) pytracer_collective_reached(number, static_cast<uint32_t>(CollectiveState::kCompleted));
  }
}
void end_collectives() {
  while (!done.load(std::memory_order_relaxed)) {
    uint64_t last = last_collective;
    pytracer_collective_reached(last > kCollectives ? last - kCollectives + 1 : last, static_cast<uint32_t>(CollectiveState::kStarted));
    pytracer_start_scheduled_collective([](const void*, const void*) { return 1; }, nullptr);
    pytracer_group_reached("none", last, static_cast<uint32_t>(CollectiveState::kCompleted));
  }
}

// ---- records, the journal, scopes, threads that begin and end ----

void record() {
  ScopedTensor tensors[3] = {};
  for (uint64_t n = 0; n < rounds; n++) {
    pytracer_mark("a mark", 6);
    if (n % 64 == 0) pytracer_step(static_cast<int64_t>(n), 1);
    if (n % 256 == 0) pytracer_journal(static_cast<uint32_t>(EntryKind::kNote), "a note", 6);
    if (n % 16 == 0) pytracer_scoped_tensors(1, tensors, 3);
  }
}
void begin_threads() {
  for (uint64_t n = 0; n < rounds / 256; n++) std::thread([] { pytracer_mark("of a short thread", 17); }).join();
}

// ---- signal actions ----

struct sigaction numbered(uint64_t number) {
  struct sigaction action{};
  action.sa_sigaction = reinterpret_cast<void (*)(int, siginfo_t*, void*)>(number << 12);
  memcpy(&action.sa_mask, &number, sizeof number);
  return action;
}
void expect_whole(const struct sigaction& action) {
  uint64_t number = 0;
  memcpy(&number, &action.sa_mask, sizeof number);
  expect(reinterpret_cast<uint64_t>(action.sa_sigaction) >> 12 == number, "a signal action had parts of two");
}

constexpr int kUnused = SIGXCPU;  // no action of this program's

void change_actions(uint64_t first) {
  for (uint64_t n = 0; n < rounds; n++) {
    struct sigaction old{};
    crashsafe::exchange_action(kUnused, numbered(first + n), &old);
    expect_whole(old);
    expect_whole(crashsafe::action_of(kUnused));
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  char error[256] = {};
  rounds = strtoull(words[2], nullptr, 10);
  if (pytracer_start(words[1], 0, error, sizeof error) != 0 || pytracer_open_storages() == 0 || pytracer_open_collectives() == 0 ||
      pytracer_open_scoped_tensors() == 0)
    return fprintf(stderr, "stress: %s\n", error), 1;
  std::vector<std::thread> readers, writers;
  for (auto work : {read_items, look_up, free_again, end_collectives}) readers.emplace_back(work);
  for (auto work : {write_items, call_collectives, record, begin_threads}) writers.emplace_back(work);
  for (uint32_t thread = 0; thread < 2; thread++) {
    writers.emplace_back(churn, thread);
    writers.emplace_back(foreign, thread);
    writers.emplace_back(change_actions, 1 + thread * rounds);
  }
  for (auto& thread : writers) thread.join();
  done = true;
  for (auto& thread : readers) thread.join();
  fprintf(stderr, "stress: %llu items were not whole\n", static_cast<unsigned long long>(wrong.load()));
  return wrong != 0;
}
