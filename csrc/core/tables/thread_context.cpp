#include "core/tables/thread_context.h"

#include "core/file/regions.h"
#include "core/process/alternate_stack.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/sys.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <atomic>
#include <cstring>
#include <ctime>
#include <type_traits>

namespace pytracer::core {

using namespace blackbox;

constinit thread_local ThreadContext* t_context __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr uint32_t kInUse = 0, kEnded = 1, kTaken = 2;
constexpr uint32_t kHalf = kFreedPerThread / 2;
constexpr int kWaits = 5000;  // of 0.1 ms: a loaded disk takes its time to preallocate

PYTRACER_LARGE constinit ThreadContext contexts[kThreadLimit];
std::atomic<uint32_t> next_index{0}, next_recycled{0};
pthread_key_t end_key;
pthread_once_t end_key_once = PTHREAD_ONCE_INIT;

// Threads beyond the limit share this one: storages still reach the table, records and freed storages are lost.
struct Overflow {
  ThreadContext context;
  ThreadHead head = {};
  alignas(64) char records[kRecordBytes * kRecordsPerThread] = {};
  StorageLifetime freed[kFreedPerThread] = {};
};
PYTRACER_LARGE constinit Overflow overflow;

void thread_ends(void* context) {
  auto* ended = static_cast<ThreadContext*>(context);
  t_context = nullptr;
  std::atomic_ref(ended->head->ended).store(kEnded, std::memory_order_release);
}
void make_key() { pthread_key_create(&end_key, thread_ends); }

ThreadHead& head_of(uint32_t index) { return g_box.heads[index / kThreadsPerChunk][index % kThreadsPerChunk]; }

// Held by the thread that adds a chunk. Regions that it got before the file was full or busy are kept for the next try.
constinit std::atomic_flag adding = ATOMIC_FLAG_INIT;
struct {
  ThreadHead* heads;
  char* records;
  StorageLifetime* freed;
} parts;

bool make_chunk(uint32_t chunk) {
  uint32_t first = chunk * kThreadsPerChunk;
  auto region = [&](auto*& part, RegionKind kind, uint32_t item_bytes, uint32_t items) {
    if (part == nullptr) part = static_cast<std::remove_reference_t<decltype(part)>>(add_region(kind, item_bytes, items, first, 0));
    return part != nullptr;
  };
  if (!region(parts.heads, RegionKind::kThreads, sizeof(ThreadHead), kThreadsPerChunk) ||
      !region(parts.records, RegionKind::kRecords, kRecordBytes, kThreadsPerChunk * kRecordsPerThread) ||
      !region(parts.freed, RegionKind::kFreedStorages, sizeof(StorageLifetime), kThreadsPerChunk * kFreedPerThread))
    return false;
  for (uint32_t i = 0; i < kThreadsPerChunk; i++) {
    ThreadContext& context = contexts[first + i];
    context.head = parts.heads + i;
    context.records = parts.records + static_cast<size_t>(i) * kRecordsPerThread * kRecordBytes;
    context.small_freed = parts.freed + static_cast<size_t>(i) * kFreedPerThread;
    context.large_freed = context.small_freed + kHalf;
    context.index = static_cast<uint16_t>(first + i);
  }
  g_box.heads[chunk] = parts.heads;
  g_box.freed[chunk] = parts.freed;
  parts = {};
  g_box.chunk_count.store(chunk + 1, std::memory_order_release);
  return true;
}

// True when the chunk exists, or another thread stopped adding it: check again. Threads of a pool start together, so that
// all but one wait here for a moment, within bounds.
bool add_chunk(uint32_t chunk) {
  for (int waits = 0; adding.test_and_set(std::memory_order_acquire); waits++) {
    if (g_box.chunk_count.load(std::memory_order_acquire) > chunk) return true;
    if (waits == kWaits) return false;
    timespec t{0, 100'000};
    nanosleep(&t, nullptr);
  }
  bool made = g_box.chunk_count.load(std::memory_order_acquire) > chunk || make_chunk(chunk);
  adding.clear(std::memory_order_release);
  return made;
}

// In turn, so that the records of the thread that ended last stay longest.
ThreadContext* recycled() {
  uint32_t count = std::atomic_ref(g_box.header->thread_count).load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t index = next_recycled.fetch_add(1, std::memory_order_relaxed) % count;
    uint32_t expected = kEnded;
    if (std::atomic_ref(head_of(index).ended).compare_exchange_strong(expected, kTaken, std::memory_order_acq_rel)) return &contexts[index];
  }
  return nullptr;
}

// A new context of a complete chunk, else that of an ended thread, else one of a new chunk.
ThreadContext* find_context() {
  for (;;) {
    uint32_t have = g_box.chunk_count.load(std::memory_order_acquire) * kThreadsPerChunk;
    uint32_t index = next_index.load(std::memory_order_relaxed);
    while (index < have)
      if (next_index.compare_exchange_weak(index, index + 1, std::memory_order_acq_rel)) {
        std::atomic_ref(g_box.header->thread_count).fetch_add(1, std::memory_order_acq_rel);
        return &contexts[index];
      }
    if (ThreadContext* old = recycled()) return old;
    if (have >= kThreadLimit || !add_chunk(have / kThreadsPerChunk)) return nullptr;
  }
}

void begin(ThreadContext& context) {
  ThreadHead& head = *context.head;
  head.tid = crashsafe::sys_gettid();
  head.pthread = static_cast<uint64_t>(pthread_self());
  memset(head.name, 0, sizeof head.name);
  prctl(PR_GET_NAME, head.name);
  head.generation++;
  head.first_record = head.record_count;
  std::atomic_ref(head.ended).store(kInUse, std::memory_order_release);
  pthread_setspecific(end_key, &context);
}

ThreadContext& share_overflow() {
  std::atomic_ref(g_box.header->threads_dropped).fetch_add(1, std::memory_order_relaxed);
  overflow.context.head = &overflow.head;
  overflow.context.records = overflow.records;
  overflow.context.small_freed = overflow.freed;
  overflow.context.large_freed = overflow.freed + kHalf;
  overflow.context.index = 0xffff;
  return overflow.context;
}

}  // namespace

ThreadContext& attach_thread() noexcept {
  pthread_once(&end_key_once, make_key);
  crashsafe::ensure_box(crashsafe::Need::kMust);  // a forked child has none until it records something
  ThreadContext* context = find_context();
  if (context != nullptr)
    begin(*context);
  else
    context = &share_overflow();
  t_context = context;  // first: what follows may record
  arm_this_thread();    // without preload this is the only place where native threads are seen
  return *context;
}

void forget_threads() noexcept {
  t_context = nullptr;
  adding.clear(std::memory_order_relaxed);  // its holder does not exist in the child
  pthread_once(&end_key_once, make_key);
  pthread_setspecific(end_key, nullptr);
  if (g_box.chunk_count.load(std::memory_order_relaxed) == 0) return;  // most forked children, which must not pay for touched pages
  for (uint32_t i = 0; i < kThreadLimit; i++) contexts[i].sequence = 0;
  // The chunks stay where they are, zeroed in the new file: all of their contexts are those of threads that have ended.
  uint32_t have = g_box.chunk_count.load(std::memory_order_relaxed) * kThreadsPerChunk;
  for (uint32_t i = 0; i < have; i++) head_of(i).ended = kEnded;
  next_index.store(have, std::memory_order_relaxed);
  g_box.header->thread_count = have;
}

int64_t live_storages() noexcept {
  int64_t sum = 0;
  uint32_t count = std::atomic_ref(g_box.header->thread_count).load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count && i < kThreadLimit; i++)
    sum += static_cast<int64_t>(head_of(i).alloc_count) - static_cast<int64_t>(head_of(i).free_count);
  return sum + static_cast<int64_t>(overflow.head.alloc_count) - static_cast<int64_t>(overflow.head.free_count);
}

}  // namespace pytracer::core
