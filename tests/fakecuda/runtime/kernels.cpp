// Kernels: known by name, launched without effect. What torch computes on a fake device is therefore not computed.
#include "state.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

using namespace fakecuda;

namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;
std::atomic<unsigned long long> launches{0};
int a_library;  // its address is the handle of any library

std::unordered_map<const void*, std::string>& names() {
  static auto* all = new std::unordered_map<const void*, std::string>;
  return *all;
}

cudaError_t launch(const void* function, cudaStream_t handle) {
  FAKECUDA_CHECK();
  launches++;
  launched();
  Lock lock;
  auto found = names().find(function);
  const char* name = found != names().end() ? found->second.c_str() : "?";
  bool captured = capture(stream_of(handle), name);
  log("launch %s%s\n", name, captured ? " captured" : "");
  return cudaSuccess;
}

}  // namespace

/// For tests: how many kernels were launched.
FAKECUDA_API unsigned long long fakecuda_launches() { return launches; }

/// The name of a kernel; null: not known.
FAKECUDA_API const char* fakecuda_kernel_name(const void* function) {
  Lock lock;
  auto found = names().find(function);
  return found != names().end() ? found->second.c_str() : nullptr;
}

FAKECUDA_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
FAKECUDA_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  if (configurations.empty()) return cudaErrorMissingConfiguration;
  const Configuration& top = configurations.back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  configurations.pop_back();
  return cudaSuccess;
}
FAKECUDA_API void** __cudaRegisterFatBinary(void*) { return static_cast<void**>(calloc(1, sizeof(void*))); }
FAKECUDA_API void __cudaRegisterFatBinaryEnd(void**) {}
FAKECUDA_API void __cudaUnregisterFatBinary(void**) {}
FAKECUDA_API char __cudaInitModule(void**) { return 1; }
FAKECUDA_API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
FAKECUDA_API void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
  Lock lock;
  names().emplace(function, name != nullptr ? name : "?");
}
FAKECUDA_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t stream) { return launch(function, stream); }
FAKECUDA_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t stream) { return launch(kernel, stream); }
FAKECUDA_API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void**, size_t, cudaStream_t stream) {
  return launch(function, stream);
}
FAKECUDA_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* configuration, const void* function, void**) {
  return launch(function, configuration->stream);
}
FAKECUDA_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  attributes->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t, unsigned) {
  *blocks = 2;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*, void**,
                                             unsigned) {
  *library = reinterpret_cast<cudaLibrary_t>(&a_library);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t, const char*) {
  *kernel = reinterpret_cast<cudaKernel_t>(&a_library);
  return cudaSuccess;
}
