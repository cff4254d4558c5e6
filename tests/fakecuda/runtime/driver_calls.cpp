// The driver's functions that torch gets from the runtime (c10/cuda/driver_api.cpp): virtual memory for expandable segments.
#include "arena.h"
#include "memory.h"

#include <algorithm>
#include <cstring>
#include <map>

using namespace fakecuda;

namespace {

std::map<uintptr_t, size_t>& reservations() {
  static auto* all = new std::map<uintptr_t, size_t>;
  return *all;
}
struct Physical {
  size_t nbytes;
  int device;
};
std::map<unsigned long long, Physical>& physical() {
  static auto* all = new std::map<unsigned long long, Physical>;
  return *all;
}
int a_context;

CUresult not_supported() { return CUDA_ERROR_NOT_SUPPORTED; }
CUresult get_error_string(CUresult, const char** text) {
  *text = "fake driver error";
  return CUDA_SUCCESS;
}
CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult device_get_attribute(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
           attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
  return CUDA_SUCCESS;
}
CUresult get_address_range(CUdeviceptr* base, size_t* nbytes, CUdeviceptr addr) {
  Lock lock;
  uintptr_t found = 0;
  size_t size = 0;
  if (!find_allocation(addr, found, size)) {
    auto after = reservations().upper_bound(addr);
    if (after == reservations().begin() || addr >= std::prev(after)->first + std::prev(after)->second) return CUDA_ERROR_INVALID_VALUE;
    found = std::prev(after)->first;
    size = std::prev(after)->second;
  }
  if (base != nullptr) *base = found;
  if (nbytes != nullptr) *nbytes = size;
  return CUDA_SUCCESS;
}
CUresult address_reserve(CUdeviceptr* addr, size_t nbytes, size_t, CUdeviceptr, unsigned long long) {
  Lock lock;
  void* at = reserve(current_device(), nbytes);
  if (at == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *addr = reinterpret_cast<CUdeviceptr>(at);
  reservations()[*addr] = nbytes;
  log("reserve %p %zu\n", at, nbytes);
  return CUDA_SUCCESS;
}
CUresult address_free(CUdeviceptr addr, size_t nbytes) {
  Lock lock;
  reservations().erase(addr);
  release(reinterpret_cast<void*>(addr), nbytes);
  return CUDA_SUCCESS;
}
CUresult create(CUmemGenericAllocationHandle* handle, size_t nbytes, const CUmemAllocationProp* properties, unsigned long long) {
  Lock lock;
  int device = std::clamp(properties->location.id, 0, settings().devices - 1);
  if (used_bytes(device) + nbytes > settings().memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  used_bytes(device) += nbytes;
  *handle = next_id();
  physical()[*handle] = {nbytes, device};
  return CUDA_SUCCESS;
}
CUresult release_physical(CUmemGenericAllocationHandle handle) {
  Lock lock;
  auto found = physical().find(handle);
  if (found == physical().end()) return CUDA_ERROR_INVALID_VALUE;
  used_bytes(found->second.device) -= found->second.nbytes;
  physical().erase(found);
  return CUDA_SUCCESS;
}
// The arena has pages at every address already: mapping only validates, unmapping drops the contents.
CUresult map(CUdeviceptr addr, size_t nbytes, size_t, CUmemGenericAllocationHandle, unsigned long long) {
  log("map %p %zu\n", reinterpret_cast<void*>(addr), nbytes);
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr addr, size_t nbytes) {
  Lock lock;
  log("unmap %p %zu\n", reinterpret_cast<void*>(addr), nbytes);
  discard(reinterpret_cast<void*>(addr), nbytes);
  return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) { return CUDA_SUCCESS; }
CUresult get_granularity(size_t* nbytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *nbytes = kGranule;
  return CUDA_SUCCESS;
}
CUresult write_value(CUstream, CUdeviceptr addr, cuuint32_t value, unsigned) {
  Lock lock;
  memcpy(accessible(reinterpret_cast<void*>(addr)), &value, sizeof value);
  return CUDA_SUCCESS;
}
CUresult memset_d32(CUdeviceptr addr, unsigned value, size_t count, CUstream) {
  Lock lock;
  auto* at = static_cast<unsigned*>(accessible(reinterpret_cast<void*>(addr)));
  std::fill_n(at, count, value);
  return CUDA_SUCCESS;
}
CUresult get_context(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(&a_context);
  return CUDA_SUCCESS;
}
CUresult set_context(CUcontext) { return CUDA_SUCCESS; }

struct Call {
  const char* name;
  void* function;
};
const Call kCalls[] = {{"cuGetErrorString", (void*)get_error_string},
                       {"cuDeviceGet", (void*)device_get},
                       {"cuDeviceGetAttribute", (void*)device_get_attribute},
                       {"cuMemGetAddressRange", (void*)get_address_range},
                       {"cuMemAddressReserve", (void*)address_reserve},
                       {"cuMemAddressFree", (void*)address_free},
                       {"cuMemCreate", (void*)create},
                       {"cuMemRelease", (void*)release_physical},
                       {"cuMemMap", (void*)map},
                       {"cuMemUnmap", (void*)unmap},
                       {"cuMemSetAccess", (void*)set_access},
                       {"cuMemGetAllocationGranularity", (void*)get_granularity},
                       {"cuStreamWriteValue32", (void*)write_value},
                       {"cuMemsetD32Async", (void*)memset_d32},
                       {"cuCtxGetCurrent", (void*)get_context},
                       {"cuCtxSetCurrent", (void*)set_context}};

}  // namespace

FAKECUDA_API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                                          cudaDriverEntryPointQueryResult* result) {
  auto found = std::find_if(std::begin(kCalls), std::end(kCalls), [&](const Call& call) { return strcmp(call.name, name) == 0; });
  *function = found != std::end(kCalls) ? found->function : (void*)not_supported;
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
