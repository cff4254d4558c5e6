// Memory that a CUDA graph uses: during capture, the tensors of every operator that adds a node. An operator that only reads a tensor's
// properties, such as empty_like, does not use its memory.
#include "core/core_cuda.h"
#include "cuda/cuda.h"

#include "hooks/support/tensors.h"

#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

namespace pytracer::cuda {
namespace {

std::atomic<uint32_t> current{0};
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

// One operator that runs on this thread: its tensors count once a node is added while it is the innermost.
struct Running {
  std::vector<uint64_t> storages;
  bool counted = false;
};
thread_local std::vector<Running> running;
thread_local cudaGraphNode_t last_node = nullptr;
thread_local uint32_t last_graph = 0;

struct Entered final : at::ObserverContext {};

// The node that the next one of this CUDA stream would depend on: it changes when something is captured.
cudaGraphNode_t newest_node() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
#if CUDART_VERSION >= 13000
  const cudaGraphEdgeData* edges = nullptr;
  cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count);
#else
  cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count);
#endif
  return error == cudaSuccess && status == cudaStreamCaptureStatusActive && count != 0 ? nodes[count - 1] : nullptr;
}

void use(uint32_t number, Running& op, uint32_t kernel) {
  if (op.counted) return;
  op.counted = true;
  for (uint64_t storage : op.storages) pytracer_graph_input(number, storage, kernel);
}

void look(uint32_t number) {
  cudaGraphNode_t newest = newest_node();
  uint32_t kernel = take_kernel();
  if (last_graph == number && newest != last_node && newest != nullptr && !running.empty()) use(number, running.back(), kernel);
  last_node = newest;
  last_graph = number;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  uint32_t number = current.load(std::memory_order_relaxed);
  if (number == 0) return nullptr;
  try {
    look(number);
    Running op;
    pytracer::hooks::each_tensor(function, [&](const at::Tensor& tensor) {
      if (tensor.is_cuda()) op.storages.push_back(pytracer::hooks::storage_addr(tensor));
    });
    running.push_back(std::move(op));
    // Collectives run on a CUDA stream of their own, which joins the capture: their buffers are certainly used.
    if (strncmp(function.name(), "c10d::", 6) == 0) use(number, running.back(), 0);
    return std::make_unique<Entered>();
  } catch (...) {
    pytracer_count_hook_error();
    return nullptr;
  }
}

void on_end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr || running.empty()) return;
  try {
    if (uint32_t number = current.load(std::memory_order_relaxed); number != 0) look(number);
  } catch (...) {
    pytracer_count_hook_error();
  }
  running.pop_back();
}

}  // namespace

uint32_t capturing() noexcept { return current.load(std::memory_order_relaxed); }

uint32_t begin_capture(uint64_t pool_graph, uint64_t pool_number) {
  c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  pytracer_call_site site = call_site();
  pytracer_device_event capture{};
  capture.stream = reinterpret_cast<uint64_t>(stream.stream());
  capture.device = static_cast<uint32_t>(stream.device_index());
  capture.pool_graph = static_cast<uint32_t>(pool_graph);
  capture.pool_number = static_cast<uint32_t>(pool_number);
  capture.site_id = site.id;
  capture.site_where = site.where;
  uint32_t number = pytracer_graph_begin(&capture);
  if (number == 0) return 0;
  running.clear();
  current.store(number, std::memory_order_relaxed);
  follow_kernels(KernelsFor::kCapture, true);
  if (handle == at::INVALID_CALLBACK_HANDLE)
    handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  return number;
}

void end_capture(uint32_t number, bool captured, uint64_t pool_graph, uint64_t pool_number) {
  current.store(0, std::memory_order_relaxed);
  follow_kernels(KernelsFor::kCapture, false);
  if (handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
  pytracer_graph_end(number, captured, static_cast<uint32_t>(pool_graph), static_cast<uint32_t>(pool_number));
}

void reset(uint32_t number) {
  pytracer_call_site site = call_site();
  pytracer_graph_reset(number, site.id, site.where);
}

}  // namespace pytracer::cuda
