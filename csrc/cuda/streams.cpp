// The current stream of a thread: a thread-local of torch's, no call of the driver's.
#include "../recorder/core_cuda.h"
#include "cuda.h"

#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>

namespace pytracer::cuda {
namespace {

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

void install_stream_probe() { pytracer_set_stream_probe(&current_stream); }

}  // namespace pytracer::cuda
