#include "state.h"

#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace fakecuda {
namespace {

thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;
std::atomic<int> sticky{0}, ordered_fault{0}, pending_fault{0};
std::atomic<bool> hanging{false};

size_t from_environment(const char* name, size_t otherwise) {
  const char* text = getenv(name);
  return text != nullptr && *text != 0 ? strtoull(text, nullptr, 0) : otherwise;
}

FILE* open_log() {
  const char* path = getenv("FAKECUDA_LOG");
  if (path == nullptr) return nullptr;
  FILE* file = strcmp(path, "-") == 0 ? stderr : fopen(path, "a");
  if (file != nullptr) setvbuf(file, nullptr, _IOLBF, 0);
  return file;
}

bool hang_is_over(const void*) { return !hanging.load(); }

std::vector<Stream*>& default_streams() {
  static auto* all = [] {
    auto* made = new std::vector<Stream*>;
    for (int i = 0; i < settings().devices; i++) made->push_back(new Stream{i, 0, 0});
    return made;
  }();
  return *all;
}

}  // namespace

const Settings& settings() {
  static const Settings values{static_cast<int>(from_environment("FAKECUDA_DEVICES", 2)), from_environment("FAKECUDA_MEMORY_MB", 8192) * kMiB};
  return values;
}

std::recursive_mutex& mutex() {
  static auto* made = new std::recursive_mutex;  // never destroyed: torch frees memory while the process exits
  return *made;
}

std::set<Stream*>& streams() {
  static auto* all = new std::set<Stream*>(default_streams().begin(), default_streams().end());
  return *all;
}

// 0 is the default stream, 1 and 2 are cudaStreamLegacy and cudaStreamPerThread.
Stream* stream_of(cudaStream_t handle) {
  return reinterpret_cast<uintptr_t>(handle) <= 2 ? default_streams()[device] : reinterpret_cast<Stream*>(handle);
}
bool is_stream(cudaStream_t handle) { return reinterpret_cast<uintptr_t>(handle) <= 2 || streams().count(reinterpret_cast<Stream*>(handle)) != 0; }

unsigned long long next_id() {
  static std::atomic<unsigned long long> next{10};
  return next++;
}

bool capture(Stream* stream, const std::string& what) {
  if (stream->capturing == nullptr) return false;
  stream->capturing->nodes.push_back(new Node{what});
  return true;
}

cudaError_t fail(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
cudaError_t sticky_error() { return static_cast<cudaError_t>(sticky.load(std::memory_order_relaxed)); }

void launched() {
  if (int code = ordered_fault.exchange(0); code != 0) pending_fault = code;
}
void surface_device_fault() {
  if (int code = pending_fault.exchange(0); code != 0) sticky = code;
}

bool passed(Gates& gates) {
  while (!gates.empty() && gates.back().passed(gates.back().argument)) gates.pop_back();
  return gates.empty();
}
void wait_for(Gates gates) {
  while (!passed(gates)) usleep(200);
}
Gates gates_now(const Stream& stream) {
  Gates gates = stream.gates;
  if (hanging.load()) gates.push_back({hang_is_over, nullptr});
  return gates;
}

int& current_device() { return device; }

double now_ms() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

void log(const char* format, ...) {
  static FILE* const file = open_log();
  if (file == nullptr) return;
  va_list arguments;
  va_start(arguments, format);
  vfprintf(file, format, arguments);
  va_end(arguments);
}

}  // namespace fakecuda

using namespace fakecuda;

// ---- controls, for tests by ctypes (README.md) ----
/// Work queued from now on does not finish until fakecuda_hang(0).
FAKECUDA_API void fakecuda_hang(int on) { hanging = on != 0; }
/// Every call fails with this error from now on.
FAKECUDA_API void fakecuda_error(int code) { sticky = code; }
/// The next kernel that is launched faults on the device: later calls return the error, the launch does not.
FAKECUDA_API void fakecuda_fault_in_next_kernel(int code) { ordered_fault = code; }
/// The stream's work is done once passed(argument). For the fake NCCL.
FAKECUDA_API void fakecuda_gate(cudaStream_t handle, bool (*until)(const void*), const void* argument) {
  Lock lock;
  Stream* stream = stream_of(handle);
  if (!capture(stream, "collective")) stream->gates.push_back({until, argument});
}

FAKECUDA_API cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
FAKECUDA_API cudaError_t cudaPeekAtLastError() { return last_error; }
FAKECUDA_API const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorAssert: return "cudaErrorAssert";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    default: return "cudaErrorUnknown";
  }
}
FAKECUDA_API const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorAssert: return "device-side assert triggered";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    default: return "unknown error";
  }
}
