// A kernel whose assertion fails leaves its words in a buffer. Later, on whichever thread waits for the device, libcuda prints them by
// vfprintf(), piece by piece, once for every failed thread of the device; the last piece that has something to say is the condition. Its
// pointer to that function, in its global offset table, is led to us. Calls of other libraries are not touched.
#include "blackbox/layout.h"
#include "core/core.h"
#include "cuda/cuda.h"
#include "hooks/support/got_patch.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace pytracer::cuda {
namespace {

constexpr const char* kDriver = "libcuda.so.1";
constexpr const char* kFunction = "vfprintf";
constexpr const char* kWords = "Assertion `";  // in the driver's format
constexpr uint32_t kMostAssertions = 8;        // thousands of threads may fail at once
constexpr size_t kLongest = 1024;

std::atomic<uint32_t> recorded{0};
std::atomic_flag busy = ATOMIC_FLAG_INIT;

// What was printed since the last end of a line. Under `busy`.
struct Line {
  char text[kLongest];
  size_t used = 0;

  void add(const char* format, va_list arguments) {
    int length = vsnprintf(text + used, sizeof text - used, format, arguments);
    if (length > 0) used = std::min(used + static_cast<size_t>(length), sizeof text - 1);
  }
  void forget_ended() {
    const auto* end = static_cast<const char*>(memrchr(text, '\n', used));
    if (end == nullptr && used < sizeof text - 1) return;
    size_t kept = end != nullptr ? static_cast<size_t>(text + used - (end + 1)) : 0;
    if (kept != 0) memmove(text, end + 1, kept);
    used = kept;
  }
};
Line line;

void record(const char* format, va_list arguments) {
  if (recorded.load(std::memory_order_relaxed) >= kMostAssertions || busy.test_and_set(std::memory_order_acquire)) return;
  int before = errno;
  line.add(format, arguments);
  if (strstr(format, kWords) != nullptr) {
    pytracer_journal(static_cast<uint32_t>(blackbox::EntryKind::kDeviceAssertion), line.text, line.used);
    recorded.fetch_add(1, std::memory_order_relaxed);
    line.used = 0;
  } else {
    line.forget_ended();
  }
  errno = before;
  busy.clear(std::memory_order_release);
}

int on_vfprintf(FILE* file, const char* format, va_list arguments) {
  va_list again;
  va_copy(again, arguments);
  record(format, again);
  va_end(again);
  return vfprintf(file, format, arguments);
}

}  // namespace

void watch_assertions() { hooks::lead_calls(kDriver, kFunction, reinterpret_cast<void*>(on_vfprintf)); }

}  // namespace pytracer::cuda
