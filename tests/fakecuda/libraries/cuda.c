/* libcuda.so.1. Libraries with an embedded runtime find no device and disable themselves; torch's lazy initialization finds
   a primary context. What torch needs beyond that it asks the runtime for (runtime/driver_calls.cpp). */
static int context;
enum { kSuccess = 0, kNoDevice = 100, kNotSupported = 801 };

int cuInit(unsigned flags) { return kNoDevice; }
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kNoDevice;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return kSuccess;
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** out, int device) {
  *out = &context;
  return kSuccess;
}
int cuCtxGetCurrent(void** out) {
  *out = &context;
  return kSuccess;
}
int cuCtxSetCurrent(void* unused) { return kSuccess; }
int cuGetErrorString(int error, const char** text) {
  *text = "fake driver error";
  return kSuccess;
}
int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags, void* status) { return kNotSupported; }
int cuGetExportTable(const void** table, const void* id) { return kNotSupported; }
