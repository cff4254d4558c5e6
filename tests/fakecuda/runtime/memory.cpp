// Memory of devices and pinned memory of the host; copies, which are done at once.
#include "memory.h"

#include "arena.h"

#include <sys/mman.h>

#include <cstring>
#include <map>

using namespace fakecuda;

namespace {

constexpr size_t kPage = 4096;
int a_pool;  // its address is the handle of the only memory pool

struct Allocation {
  size_t nbytes;
  int device;
};
std::map<uintptr_t, Allocation>& device_allocations() {
  static auto* all = new std::map<uintptr_t, Allocation>;
  return *all;
}
std::map<uintptr_t, Allocation>& pinned_allocations() {
  static auto* all = new std::map<uintptr_t, Allocation>;
  return *all;
}
using Found = std::map<uintptr_t, Allocation>::iterator;

Found covering(std::map<uintptr_t, Allocation>& all, uintptr_t addr) {
  auto after = all.upper_bound(addr);
  if (after == all.begin()) return all.end();
  auto found = std::prev(after);
  return addr < found->first + found->second.nbytes ? found : all.end();
}

size_t in_pages(size_t nbytes) { return ((nbytes != 0 ? nbytes : 1) + kPage - 1) / kPage * kPage; }

cudaError_t copy(void* to, const void* from, size_t nbytes, cudaStream_t handle, const char* what) {
  FAKECUDA_CHECK();
  Lock lock;
  if (capture(stream_of(handle), what)) return cudaSuccess;
  if (nbytes != 0) memmove(accessible(to), accessible(from), nbytes);
  return cudaSuccess;
}

}  // namespace

namespace fakecuda {

bool find_allocation(uintptr_t addr, uintptr_t& base, size_t& nbytes) {
  auto found = covering(device_allocations(), addr);
  if (found == device_allocations().end()) return false;
  base = found->first;
  nbytes = found->second.nbytes;
  return true;
}

}  // namespace fakecuda

FAKECUDA_API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  FAKECUDA_CHECK();
  Lock lock;
  size_t used = used_bytes(current_device());
  *total = settings().memory_bytes;
  *free = used < *total ? *total - used : 0;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaMalloc(void** addr, size_t nbytes) {
  FAKECUDA_CHECK();
  Lock lock;
  int device = current_device();
  size_t taken = in_granules(nbytes);
  if (used_bytes(device) + taken > settings().memory_bytes || (*addr = reserve(device, nbytes)) == nullptr) return fail(cudaErrorMemoryAllocation);
  used_bytes(device) += taken;
  device_allocations()[reinterpret_cast<uintptr_t>(*addr)] = {nbytes, device};
  log("malloc device=%d %p %zu\n", device, *addr, nbytes);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaFree(void* addr) {
  FAKECUDA_CHECK();
  if (addr == nullptr) return cudaSuccess;
  Lock lock;
  auto found = device_allocations().find(reinterpret_cast<uintptr_t>(addr));
  if (found == device_allocations().end()) return fail(cudaErrorInvalidValue);
  used_bytes(found->second.device) -= in_granules(found->second.nbytes);
  release(addr, found->second.nbytes);
  device_allocations().erase(found);
  log("free %p\n", addr);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaMallocAsync(void** addr, size_t nbytes, cudaStream_t) { return cudaMalloc(addr, nbytes); }
FAKECUDA_API cudaError_t cudaFreeAsync(void* addr, cudaStream_t) { return cudaFree(addr); }

FAKECUDA_API cudaError_t cudaHostAlloc(void** addr, size_t nbytes, unsigned) {
  FAKECUDA_CHECK();
  Lock lock;
  *addr = mmap(nullptr, in_pages(nbytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*addr == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  pinned_allocations()[reinterpret_cast<uintptr_t>(*addr)] = {nbytes, current_device()};
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaFreeHost(void* addr) {
  Lock lock;
  auto found = pinned_allocations().find(reinterpret_cast<uintptr_t>(addr));
  if (found == pinned_allocations().end()) return fail(cudaErrorInvalidValue);
  munmap(addr, in_pages(found->second.nbytes));
  pinned_allocations().erase(found);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaHostRegister(void* addr, size_t nbytes, unsigned) {
  Lock lock;
  pinned_allocations()[reinterpret_cast<uintptr_t>(addr)] = {nbytes, current_device()};
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaHostUnregister(void* addr) {
  Lock lock;
  pinned_allocations().erase(reinterpret_cast<uintptr_t>(addr));
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* addr) {
  Lock lock;
  memset(attributes, 0, sizeof *attributes);
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->device = device_of(addr);
  if (attributes->device >= 0) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = const_cast<void*>(addr);
    return cudaSuccess;
  }
  attributes->device = -2;
  auto found = covering(pinned_allocations(), reinterpret_cast<uintptr_t>(addr));
  if (found == pinned_allocations().end()) return cudaSuccess;
  attributes->type = cudaMemoryTypeHost;
  attributes->device = found->second.device;
  attributes->hostPointer = attributes->devicePointer = const_cast<void*>(addr);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t nbytes, cudaMemcpyKind, cudaStream_t stream) {
  return copy(to, from, nbytes, stream, "memcpy");
}
FAKECUDA_API cudaError_t cudaMemcpy(void* to, const void* from, size_t nbytes, cudaMemcpyKind) {
  surface_device_fault();
  return copy(to, from, nbytes, nullptr, "memcpy");
}
FAKECUDA_API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t nbytes, cudaStream_t stream) {
  return copy(to, from, nbytes, stream, "memcpy");
}
FAKECUDA_API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                                           cudaMemcpyKind, cudaStream_t stream) {
  for (size_t row = 0; row < height; row++) {
    auto error = copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width, stream, "memcpy");
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaGetSymbolAddress(void** addr, const void* symbol) {
  *addr = const_cast<void*>(symbol);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaMemsetAsync(void* to, int value, size_t nbytes, cudaStream_t handle) {
  FAKECUDA_CHECK();
  Lock lock;
  if (!capture(stream_of(handle), "memset") && nbytes != 0) memset(accessible(to), value, nbytes);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaMemset(void* to, int value, size_t nbytes) { return cudaMemsetAsync(to, value, nbytes, nullptr); }

// ---- for torch's pluggable allocator ----
FAKECUDA_API void* fakecuda_plug_alloc(ptrdiff_t nbytes, int, cudaStream_t) {
  void* addr = nullptr;
  return cudaMalloc(&addr, static_cast<size_t>(nbytes)) == cudaSuccess ? addr : nullptr;
}
FAKECUDA_API void fakecuda_plug_free(void* addr, ptrdiff_t, int, cudaStream_t) { cudaFree(addr); }

// ---- memory pools of the driver: one, always empty ----
FAKECUDA_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = reinterpret_cast<cudaMemPool_t>(&a_pool);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
  *static_cast<uint64_t*>(value) = 0;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return cudaSuccess; }

// ---- sharing between processes: not supported ----
FAKECUDA_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return fail(cudaErrorNotSupported); }
FAKECUDA_API cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return fail(cudaErrorNotSupported); }
FAKECUDA_API cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) { return fail(cudaErrorNotSupported); }
FAKECUDA_API cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) { return fail(cudaErrorNotSupported); }
