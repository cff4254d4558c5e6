/* libcuda.so.1. Libraries with an embedded runtime find no device and disable themselves; torch's lazy initialization finds
   a primary context. What torch needs beyond that it asks the runtime for (runtime/driver_calls.cpp). */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>

static int context;
enum { kSuccess = 0, kNoDevice = 100, kNotSupported = 801 };

/* As the driver prints: by the same function of libc, one conversion at a time. */
static void print(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
}
void fakecuda_print_assertion(const char* file, unsigned line, const char* function, int thread, const char* condition) {
  print("%s", file);
  print(":%u", line);
  print(": %s", function);
  print(": block: [%d", 0);
  print(",%d", 0);
  print(",%d", 0);
  print("], thread: [%d", thread);
  print(",%d", 0);
  print(",%d", 0);
  print("] Assertion `%s", condition);
  print("` failed.\n");
}

/* A kernel's handle is the address of its host function (runtime/kernels.cpp). */
int cuKernelGetName(const char** name, void* kernel) {
  void* runtime = dlopen("libcudart.so.13", RTLD_LAZY | RTLD_NOLOAD);
  const char* (*name_of)(void*) = runtime != 0 ? (const char* (*)(void*))dlsym(runtime, "fakecuda_kernel_name") : 0;
  *name = name_of != 0 ? name_of(kernel) : 0;
  return *name != 0 ? kSuccess : kNotSupported;
}

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
