/* libnvidia-ml.so.1. Initialization and device handles succeed: torch calls a null pointer otherwise (expandable segments, 2.14). */
#include <stdlib.h>

enum { kSuccess = 0, kNotSupported = 3 };

int nvmlInit(void) { return kSuccess; }
int nvmlInit_v2(void) { return kSuccess; }
int nvmlShutdown(void) { return kSuccess; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  const char* text = getenv("FAKECUDA_DEVICES");
  *count = text != NULL ? (unsigned)atoi(text) : 2;
  return kSuccess;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  *device = (void*)1;
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return kNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return kNotSupported; }
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, void* infos) {
  *count = 0;
  return kSuccess;
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return kSuccess;
}
int nvmlDeviceGetGpuFabricInfoV(void* device, void* info) { return kNotSupported; }
