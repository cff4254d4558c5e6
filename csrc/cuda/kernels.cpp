// The kernels that operators launch, by name: at level "ops", and while a CUDA graph is captured. Host code launches a kernel by __cudaLaunchKernel()
// of the runtime (CUDA 13), with a handle that the driver knows the name of; libtorch_cuda's calls of it are led to us. Only the driver is asked: a
// query of the runtime that fails would be the next error that the program gets.
#include "blackbox/layout.h"
#include "core/core_cuda.h"
#include "cuda/cuda.h"
#include "hooks/support/got_patch.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>

namespace pytracer::cuda {
namespace {

#if CUDART_VERSION >= 13000

constexpr const char* kTorch = "libtorch_cuda.so";
constexpr const char* kDriver = "libcuda.so.1";
constexpr const char* kFunction = "__cudaLaunchKernel";
constexpr uint32_t kUnknown = ~0u, kKind = static_cast<uint32_t>(blackbox::EntryKind::kKernel);

using Launch = cudaError_t (*)(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
using GetName = int (*)(const char**, cudaKernel_t);  // cuKernelGetName

std::atomic<uint32_t> wanted{0};  // KernelsFor
thread_local uint32_t last = 0;
std::atomic<void*> original{nullptr};  // Launch
std::atomic<GetName> get_name{nullptr};

// Names by handle: an open-addressing table, to which is added and from which nothing is taken. Kernels beyond it are not named.
constexpr size_t kKernels = 4096;
struct Known {
  std::atomic<cudaKernel_t> kernel;
  std::atomic<uint32_t> name;  // 0: being asked for
};
Known known[kKernels];

uint32_t name_of(cudaKernel_t kernel) {
  auto at = static_cast<size_t>((reinterpret_cast<uintptr_t>(kernel) * 0x9E3779B97F4A7C15ull) >> 52);
  for (size_t i = 0; i < kKernels; i++, at = (at + 1) % kKernels) {
    cudaKernel_t here = known[at].kernel.load(std::memory_order_acquire);
    if (here == kernel) return known[at].name.load(std::memory_order_acquire);
    if (here != nullptr || !known[at].kernel.compare_exchange_strong(here, kernel)) {
      if (here == kernel) return 0;  // another thread asks for it now
      continue;
    }
    const char* text = nullptr;
    GetName ask = get_name.load(std::memory_order_relaxed);
    uint32_t name = ask(&text, kernel) == 0 && text != nullptr ? pytracer_journal(kKind, text, strlen(text)) : 0;
    known[at].name.store(name != 0 ? name : kUnknown, std::memory_order_release);
    return known[at].name;
  }
  return kUnknown;
}

cudaError_t on_launch(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes, cudaStream_t stream) {
  if (uint32_t who = wanted.load(std::memory_order_relaxed); who != 0) {
    uint32_t name = name_of(kernel);
    last = name != kUnknown ? name : 0;
    if (last != 0 && (who & static_cast<uint32_t>(KernelsFor::kOperators)) != 0) pytracer_kernel_launched(last);
  }
  return reinterpret_cast<Launch>(original.load(std::memory_order_relaxed))(kernel, grid, block, arguments, shared_bytes, stream);
}

void lead() {
  void* driver = dlopen(kDriver, RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return;
  get_name.store(reinterpret_cast<GetName>(dlsym(driver, "cuKernelGetName")));
  if (get_name.load() != nullptr) hooks::lead_calls(kTorch, kFunction, reinterpret_cast<void*>(on_launch), &original);
  dlclose(driver);
}

}  // namespace

void follow_kernels(KernelsFor who, bool follow) {
  if (follow && original.load() == nullptr) lead();
  if (follow)
    wanted.fetch_or(static_cast<uint32_t>(who));
  else
    wanted.fetch_and(~static_cast<uint32_t>(who));
}

uint32_t take_kernel() noexcept {
  uint32_t name = last;
  last = 0;
  return name;
}

#else

}  // namespace

void follow_kernels(KernelsFor, bool) {}  // the names of handles are those of CUDA 13
uint32_t take_kernel() noexcept { return 0; }

#endif

}  // namespace pytracer::cuda
