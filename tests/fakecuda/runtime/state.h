// Shared state of the fake CUDA runtime: settings, streams, graphs, one lock. Simple rather than fast.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#define FAKECUDA_API extern "C" __attribute__((visibility("default")))

/// Returns the sticky error, if the device has one: from then on every call fails with it, as on real hardware.
#define FAKECUDA_CHECK()                                                              \
  do {                                                                                \
    if (cudaError_t sticky = ::fakecuda::sticky_error(); sticky) return fail(sticky); \
  } while (0)

namespace fakecuda {

constexpr size_t kMiB = 1ull << 20, kGiB = 1ull << 30;
constexpr size_t kGranule = 2 * kMiB;  // of device memory, as on real hardware

/// From the environment: FAKECUDA_DEVICES, FAKECUDA_MEMORY_MB, FAKECUDA_LOG.
struct Settings {
  int devices;
  size_t memory_bytes;  ///< of each device, as cudaMemGetInfo returns
};
const Settings& settings();

/// Work is done once `passed(argument)`: a collective, for example, that other ranks have not entered. The argument is never
/// freed, since events may outlive the objects that created them.
struct Gate {
  bool (*passed)(const void*);
  const void* argument;
};
using Gates = std::vector<Gate>;

struct Node {
  std::string what;
};

struct Graph {
  unsigned long long id = 0;
  std::vector<Node*> nodes;
  std::vector<std::pair<cudaHostFn_t, void*>> owned;  ///< called when the graph is destroyed
  bool invalid = false;
};

struct Stream {
  int device;
  unsigned flags;
  int priority;
  Graph* capturing = nullptr;
  Gates gates{};  ///< what its newest work waits for
};

struct Event {
  bool recorded = false;
  Graph* captured = nullptr;
  double ms = 0;
  Gates gates{};
};

/// One lock for all state; recursive, since calls use each other.
std::recursive_mutex& mutex();
struct Lock {
  std::lock_guard<std::recursive_mutex> held{mutex()};
};

/// All streams, the default ones among them. With the lock held.
std::set<Stream*>& streams();
Stream* stream_of(cudaStream_t handle);
bool is_stream(cudaStream_t handle);
unsigned long long next_id();

/// Adds a node to the graph that the stream is captured into. False when it is not capturing: the work is to be done.
bool capture(Stream* stream, const std::string& what);

/// Remembers the error for cudaGetLastError.
cudaError_t fail(cudaError_t error);
cudaError_t sticky_error();

/// A fault on the device: launches still succeed, the next call that waits or queries returns it. With FAKECUDA_CHECK after it.
void surface_device_fault();

/// A kernel was launched: it faults, if a fault was requested.
void launched();

/// All done? Forgets what has passed.
bool passed(Gates& gates);
/// Waits without the lock.
void wait_for(Gates gates);
/// What work that is queued now has to wait for.
Gates gates_now(const Stream& stream);

int& current_device();
double now_ms();
void log(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace fakecuda
