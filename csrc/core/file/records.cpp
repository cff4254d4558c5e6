#include "core/file/records.h"

#include "core/tables/thread_context.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/sys.h"

#include <atomic>
#include <cstring>

namespace pytracer::core {

using namespace blackbox;

namespace {

struct Record : RecordHeader {
  char payload[kRecordBytes - sizeof(RecordHeader)];
};
static_assert(sizeof(Record) == kRecordBytes);

}  // namespace

void write_record(RecordKind kind, const void* payload, size_t nbytes) noexcept {
  if (nbytes > sizeof(Record::payload)) nbytes = sizeof(Record::payload);
  ThreadContext& context = this_thread();
  uint64_t number = context.head->record_count + 1;
  crashsafe::Ring<Record, kRecordsPerThread, &RecordHeader::order>(reinterpret_cast<Record*>(context.records)).write(number, [&](Record& record) {
    record.kind = static_cast<uint16_t>(kind);
    record.nbytes = static_cast<uint16_t>(sizeof(RecordHeader) + nbytes);
    record.mono_ns = crashsafe::now_ns();
    memcpy(record.payload, payload, nbytes);
  });
  std::atomic_ref(context.head->record_count).store(number, std::memory_order_relaxed);
}

void amend_record(RecordKind kind, size_t offset, uint32_t kept, uint32_t bits) noexcept {
  ThreadContext& context = this_thread();
  uint64_t number = context.head->record_count;
  if (number == 0) return;
  Record& record = reinterpret_cast<Record*>(context.records)[(number - 1) % kRecordsPerThread];
  if (record.kind != static_cast<uint16_t>(kind)) return;
  std::atomic_ref word(*reinterpret_cast<uint32_t*>(record.payload + offset));  // one word: a reader sees it before or after
  word.store((word.load(std::memory_order_relaxed) & kept) | bits, std::memory_order_relaxed);
}

}  // namespace pytracer::core
