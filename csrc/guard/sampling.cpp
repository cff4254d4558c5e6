#include "guard/sampling.h"

#include "crashsafe/platform/sys.h"
#include "guard/guard.h"

#include <atomic>

namespace pytracer::guard {
namespace {

std::atomic<uint64_t> every_{1}, min_bytes_{0};

// Plain values: initial-exec thread-locals of a loaded library are allocated from a small static reserve.
constinit thread_local uint64_t t_left __attribute__((tls_model("initial-exec"))) = 0;
constinit thread_local uint64_t t_random __attribute__((tls_model("initial-exec"))) = 0;

// A fixed gap would be in step with the training loop and guard the same storage for ever. Mean: `every`.
__attribute__((noinline, cold)) uint64_t next_gap(uint64_t every) {
  if (t_random == 0) t_random = (crashsafe::now_ns() ^ static_cast<uint64_t>(crashsafe::sys_gettid()) << 32) | 1;
  t_random ^= t_random << 13;
  t_random ^= t_random >> 7;
  t_random ^= t_random << 17;
  return 1 + t_random % (2 * every - 1);
}

}  // namespace

void set_sampling(uint64_t every, uint64_t min_bytes) noexcept {
  every_.store(every > 0 ? every : 1, std::memory_order_relaxed);
  min_bytes_.store(min_bytes, std::memory_order_relaxed);
}

bool chosen(size_t nbytes) noexcept {
  if (nbytes == 0 || nbytes < min_bytes_.load(std::memory_order_relaxed)) return false;
  uint64_t every = every_.load(std::memory_order_relaxed);
  if (every == 1) return true;
  if (t_left > 1) {
    t_left--;
    return false;
  }
  bool first = t_left == 0;  // of this thread: begin anywhere in a gap
  t_left = next_gap(every);
  return !first;
}

}  // namespace pytracer::guard
