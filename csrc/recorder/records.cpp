#include "records.h"

#include "../crashsafe/sys.h"
#include "thread_context.h"

#include <atomic>
#include <cstring>

namespace pytracer::recorder {

using namespace blackbox;

void write_record(RecordKind kind, const void* payload, size_t nbytes) noexcept {
  constexpr size_t kRoom = kRecordBytes - sizeof(RecordHeader);
  if (nbytes > kRoom) nbytes = kRoom;
  ThreadContext& context = this_thread();
  uint64_t count = context.head->record_count;
  auto* record = reinterpret_cast<RecordHeader*>(context.records + (count % kRecordsPerThread) * kRecordBytes);
  std::atomic_ref order(record->order);
  order.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader that sees new bytes sees order 0 before
  record->kind = static_cast<uint16_t>(kind);
  record->nbytes = static_cast<uint16_t>(sizeof(RecordHeader) + nbytes);
  record->mono_ns = crashsafe::now_ns();
  memcpy(record + 1, payload, nbytes);
  order.store(static_cast<uint32_t>(count + 1), std::memory_order_release);
  std::atomic_ref(context.head->record_count).store(count + 1, std::memory_order_relaxed);
}

}  // namespace pytracer::recorder
