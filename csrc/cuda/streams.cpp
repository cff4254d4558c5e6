// The current stream of a thread: a thread-local of torch's, no call of the driver's.
#include "../blackbox/layout.h"
#include "../recorder/core_cuda.h"
#include "cuda.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <mutex>

namespace pytracer::cuda {
namespace {

using blackbox::StreamState;

std::mutex captures_mutex;
int captures = 0;  // that begin, run or end

// Inside collectives on devices only, so that CUDA is initialized.
int current_stream(pytracer_stream* out) noexcept {
  try {
    c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    out->stream = reinterpret_cast<uint64_t>(stream.stream());
    out->device = static_cast<uint32_t>(stream.device_index());
    uint32_t graph = capturing();  // asked for first: whether a stream is captured is a call of the runtime's
    bool captured = graph != 0 && c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
    out->graph = captured ? graph : 0;
    return 1;
  } catch (...) {
    pytracer_count_hook_error();
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

void install_stream_probe() { pytracer_set_stream_probe(&current_stream); }

}  // namespace pytracer::cuda
