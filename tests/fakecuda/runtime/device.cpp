// Devices: how many, what they can do.
#include "arena.h"

#include <cstdio>
#include <cstring>

using namespace fakecuda;

namespace {

std::set<std::pair<int, int>> peers;

bool exists(int device) { return device >= 0 && device < settings().devices; }

}  // namespace

FAKECUDA_API cudaError_t cudaGetDeviceCount(int* count) {
  FAKECUDA_CHECK();
  *count = settings().devices;
  return settings().devices != 0 ? cudaSuccess : fail(cudaErrorNoDevice);
}
FAKECUDA_API cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  current_device() = device;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaDeviceSynchronize() {
  surface_device_fault();
  FAKECUDA_CHECK();
  Gates gates;
  {
    Lock lock;
    for (Stream* stream : streams()) {
      if (stream->device != current_device()) continue;
      if (stream->capturing != nullptr) {
        stream->capturing->invalid = true;
        return fail(cudaErrorStreamCaptureUnsupported);
      }
      for (const Gate& gate : gates_now(*stream)) gates.push_back(gate);
    }
  }
  wait_for(gates);
  FAKECUDA_CHECK();
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "Fake CUDA device");
  p->uuid.bytes[0] = static_cast<char>(device);
  p->totalGlobalMem = settings().memory_bytes;
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = 9;
  p->textureAlignment = 512;
  p->multiProcessorCount = 132;
  p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
  p->managedMemory = p->cooperativeLaunch = p->hostRegisterSupported = p->memoryPoolsSupported = 1;
  p->clusterLaunch = p->unifiedFunctionPointers = 1;
  p->pciBusID = 0x10 + device;
  p->asyncEngineCount = 3;
  p->memoryBusWidth = 5120;
  p->l2CacheSize = 50 * kMiB;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerMultiprocessor = 233472;
  p->sharedMemPerBlockOptin = 232448;
  p->maxBlocksPerMultiProcessor = 32;
  p->reservedSharedMemPerBlock = 1024;
  p->deviceNumaId = p->hostNumaId = -1;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaError_t error = cudaGetDeviceProperties(&p, device)) return error;
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(p.sharedMemPerBlockOptin); break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrStreamPrioritiesSupported: *value = 1; break;
    case cudaDevAttrPciBusId: *value = p.pciBusID; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    default: *value = 0;
  }
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaDeviceGetPCIBusId(char* text, int nbytes, int device) {
  snprintf(text, static_cast<size_t>(nbytes), "0000:%02X:00.0", 0x10 + device);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  Lock lock;
  return peers.insert({current_device(), peer}).second ? cudaSuccess : fail(cudaErrorPeerAccessAlreadyEnabled);
}
FAKECUDA_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
FAKECUDA_API cudaError_t cudaProfilerStart() { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaProfilerStop() { return cudaSuccess; }
