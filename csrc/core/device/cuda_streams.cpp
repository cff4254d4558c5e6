#include "core/device/cuda_streams.h"

#include "core/device/device_memory.h"
#include "core/file/regions.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/sys.h"

#include <atomic>
#include <cstring>

namespace pytracer::core {
namespace {

using namespace blackbox;

CudaStream* streams = nullptr;
uint32_t stream_count = 0, last_used = 0;

CudaStream* find(uint32_t device, uint64_t stream) {
  auto is = [&](const CudaStream& item) { return item.stream == stream && item.device == device; };
  if (last_used < stream_count && is(streams[last_used])) return &streams[last_used];  // most blocks are for one stream
  for (uint32_t i = 0; i < stream_count; i++) {
    if (!is(streams[i])) continue;
    last_used = i;
    return &streams[i];
  }
  return nullptr;
}

}  // namespace

bool open_cuda_streams() noexcept {
  streams = static_cast<CudaStream*>(add_region(RegionKind::kCudaStreams, sizeof(CudaStream), kCudaStreams, 0, 0));
  stream_count = last_used = 0;
  return streams != nullptr;
}

void note_stream(uint32_t device, uint64_t stream, StreamState state, int32_t error) noexcept {
  CudaStream* known = find(device, stream);
  if (known != nullptr && state == StreamState::kUnknown) return;
  if (known == nullptr) {
    if (streams == nullptr || stream_count >= kCudaStreams) return;
    known = &streams[stream_count++];
  }
  crashsafe::SeqSlot(*known).write(known->order + 1, [&](CudaStream& item) {
    uint64_t now = crashsafe::now_ns();
    item.device = static_cast<uint16_t>(device);
    item.stream = stream;
    if (item.since_ns == 0 || item.state != static_cast<uint16_t>(state)) item.since_ns = now;
    item.state = static_cast<uint16_t>(state);
    item.error = error;
    if (state != StreamState::kUnknown) item.asked_ns = now;
  });
}

}  // namespace pytracer::core

using namespace pytracer;
using namespace pytracer::core;

extern "C" {

void pytracer_stream_state(uint32_t device, uint64_t stream, uint32_t state, int32_t error) {
  DeviceLock lock;
  note_stream(device, stream, static_cast<blackbox::StreamState>(state), error);
}

int pytracer_known_stream(uint32_t index, struct pytracer_stream* out) {
  DeviceLock lock;
  if (index >= stream_count) return 0;
  *out = {streams[index].stream, streams[index].device, 0};
  return 1;
}

void pytracer_progress_read(void) {
  if (pytracer_recording() != 0) std::atomic_ref(g_box.header->progress_ns).store(crashsafe::now_ns(), std::memory_order_release);
}

}  // extern "C"
