// The current CUDA stream of a thread: a thread-local of torch, no call of the driver.
#include "blackbox/layout.h"
#include "core/core_cuda.h"
#include "cuda/cuda.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <mutex>

#include <unistd.h>

namespace pytracer::cuda {
namespace {

using blackbox::StreamState;

std::mutex captures_mutex;
int captures = 0;  // beginning, running or ending

pid_t installed_in = 0;

// CUDAStream::stream() guards the device, which takes longer than all the rest; the handle of an id never changes.
struct Handle {
  c10::StreamId id = 0;
  c10::DeviceIndex device = -1;
  uint64_t stream = 0;
};
thread_local Handle last_handle;

uint64_t handle_of(const c10::cuda::CUDAStream& stream) {
  Handle& known = last_handle;
  if (known.id != stream.id() || known.device != stream.device_index())
    known = {stream.id(), stream.device_index(), reinterpret_cast<uint64_t>(stream.stream())};
  return known.stream;
}

// In each record, once CUDA is initialized. A child that was forked afterwards has no CUDA: torch would throw in each of them.
int current_stream(pytracer_stream* out) noexcept {
  try {
    c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    out->stream = handle_of(stream);
    out->device = static_cast<uint32_t>(stream.device_index());
    uint32_t graph = capturing();  // first, since the query whether a stream is captured calls the runtime
    bool captured = graph != 0 && c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    out->graph = captured ? graph : 0;
    return 1;
  } catch (...) {
    if (getpid() == installed_in)
      pytracer_count_hook_error();
    else
      pytracer_set_stream_probe(nullptr);
    return 0;
  }
}

}  // namespace

int ask_streams() {
  int failed = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // as torch's own watchdog of NCCL asks: c10/cuda/CUDAGraphsC10Utils.h
  if (cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) return 0;
  pytracer_stream known{};
  for (uint32_t i = 0; pytracer_known_stream(i, &known) != 0; i++) {
    std::lock_guard lock(captures_mutex);
    if (captures != 0) {
      pytracer_stream_state(known.device, known.stream, static_cast<uint32_t>(StreamState::kCaptured), 0);
      continue;
    }
    if (!c10::cuda::hasPrimaryContext(static_cast<c10::DeviceIndex>(known.device))) continue;
    c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(known.device));
    cudaError_t error = cudaStreamQuery(reinterpret_cast<cudaStream_t>(known.stream));
    if (error == cudaErrorNotReady) (void)cudaGetLastError();
    bool bad = error != cudaSuccess && error != cudaErrorNotReady;
    StreamState state = bad ? StreamState::kFailed : error == cudaSuccess ? StreamState::kIdle : StreamState::kBusy;
    pytracer_stream_state(known.device, known.stream, static_cast<uint32_t>(state), bad ? static_cast<int32_t>(error) : 0);
    if (bad) failed = static_cast<int>(error);
  }
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  return failed;
}

void lock_streams(bool lock) {
  std::lock_guard guard(captures_mutex);
  captures += lock ? 1 : -1;
}

void install_stream_probe() {
  installed_in = getpid();
  pytracer_set_stream_probe(&current_stream);
}

}  // namespace pytracer::cuda
