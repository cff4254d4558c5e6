#include "thread_context.h"

#include "../crashsafe/box.h"
#include "../crashsafe/sys.h"
#include "box_file.h"

#include <cstring>
#include <pthread.h>
#include <sys/prctl.h>

namespace pytracer::recorder {

using namespace blackbox;

constinit thread_local ThreadContext* t_context __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr uint32_t kInUse = 0, kEnded = 1, kTaken = 2;
constexpr uint32_t kHalf = kGravesPerThread / 2;

constinit ThreadContext contexts[kThreadLimit];
std::atomic<uint32_t> next_index{0};
pthread_key_t end_key;
pthread_once_t end_key_once = PTHREAD_ONCE_INIT;

// Threads beyond the limit share this one: storages still reach the table, records and graves are lost.
struct Overflow {
  ThreadContext context;
  ThreadHead head = {};
  alignas(64) char records[kRecordBytes * kRecordsPerThread] = {};
  Grave graves[kGravesPerThread] = {};
};
constinit Overflow overflow;

void thread_ends(void* context) {
  auto* ended = static_cast<ThreadContext*>(context);
  t_context = nullptr;
  std::atomic_ref(ended->head->ended).store(kEnded, std::memory_order_release);
}
void make_key() { pthread_key_create(&end_key, thread_ends); }

ThreadHead& head_of(uint32_t index) { return g_box.heads[index / kThreadsPerChunk][index % kThreadsPerChunk]; }

bool add_chunk(uint32_t chunk) {
  uint32_t first = chunk * kThreadsPerChunk;
  auto* heads = static_cast<ThreadHead*>(add_region(RegionKind::kThreads, sizeof(ThreadHead), kThreadsPerChunk, first, 0));
  if (heads == nullptr) return false;
  auto* records = static_cast<char*>(add_region(RegionKind::kRecords, kRecordBytes, kThreadsPerChunk * kRecordsPerThread, first, 0));
  auto* graves = static_cast<Grave*>(add_region(RegionKind::kGraves, sizeof(Grave), kThreadsPerChunk * kGravesPerThread, first, 0));
  if (records == nullptr || graves == nullptr) return false;
  for (uint32_t i = 0; i < kThreadsPerChunk; i++) {
    ThreadContext& context = contexts[first + i];
    context.head = heads + i;
    context.records = records + static_cast<size_t>(i) * kRecordsPerThread * kRecordBytes;
    context.small_graves = graves + static_cast<size_t>(i) * kGravesPerThread;
    context.large_graves = context.small_graves + kHalf;
    context.index = static_cast<uint16_t>(first + i);
  }
  g_box.heads[chunk] = heads;
  g_box.graves[chunk] = graves;
  g_box.chunk_count.store(chunk + 1, std::memory_order_release);
  return true;
}

ThreadContext* recycled() {
  uint32_t count = std::atomic_ref(g_box.header->thread_count).load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; i++) {
    uint32_t expected = kEnded;
    if (std::atomic_ref(head_of(i).ended).compare_exchange_strong(expected, kTaken, std::memory_order_acq_rel)) return &contexts[i];
  }
  return nullptr;
}

// A new context while its chunk has one, else that of an ended thread, else a new chunk.
ThreadContext* find_context() {
  uint32_t index = next_index.load(std::memory_order_acquire);
  for (;;) {
    bool new_chunk = index % kThreadsPerChunk == 0;
    if (new_chunk)
      if (ThreadContext* old = recycled()) return old;
    if (index >= kThreadLimit) return nullptr;
    if (!next_index.compare_exchange_weak(index, index + 1, std::memory_order_acq_rel)) continue;
    if (new_chunk && !add_chunk(index / kThreadsPerChunk)) return nullptr;
    for (int spins = 0; g_box.chunk_count.load(std::memory_order_acquire) <= index / kThreadsPerChunk; spins++) {
      if (spins > 1000) return nullptr;  // the thread that makes the chunk is slow or failed: never wait for it
      timespec t{0, 100'000};
      nanosleep(&t, nullptr);
    }
    std::atomic_ref(g_box.header->thread_count).fetch_add(1, std::memory_order_acq_rel);
    return &contexts[index];
  }
}

}  // namespace

ThreadContext& attach_thread() noexcept {
  pthread_once(&end_key_once, make_key);
  ThreadContext* context = find_context();
  if (context == nullptr) {
    std::atomic_ref(g_box.header->threads_dropped).fetch_add(1, std::memory_order_relaxed);
    overflow.context.head = &overflow.head;
    overflow.context.records = overflow.records;
    overflow.context.small_graves = overflow.graves;
    overflow.context.large_graves = overflow.graves + kHalf;
    overflow.context.index = 0xffff;
    t_context = &overflow.context;
    return overflow.context;
  }
  ThreadHead& head = *context->head;
  head.tid = crashsafe::sys_gettid();
  head.pthread = static_cast<uint64_t>(pthread_self());
  memset(head.name, 0, sizeof head.name);
  prctl(PR_GET_NAME, head.name);
  head.generation++;
  std::atomic_ref(head.ended).store(kInUse, std::memory_order_release);
  pthread_setspecific(end_key, context);
  t_context = context;
  return *context;
}

void forget_threads() noexcept {
  t_context = nullptr;
  pthread_once(&end_key_once, make_key);
  pthread_setspecific(end_key, nullptr);
  for (uint32_t i = 0; i < kThreadLimit; i++) contexts[i].sequence = 0;
  // The chunks stay where they are, zeroed in the new file; hand them out from the start.
  next_index.store(0, std::memory_order_relaxed);
  for (uint32_t i = 0; i < g_box.chunk_count.load(std::memory_order_relaxed) * kThreadsPerChunk; i++) head_of(i).ended = kEnded;
  uint32_t have = g_box.chunk_count.load(std::memory_order_relaxed) * kThreadsPerChunk;
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

}  // namespace pytracer::recorder
