#include "crashsafe/unwind/stack_bounds.h"

#include <sys/resource.h>

namespace pytracer::crashsafe {

constinit thread_local StackBounds t_stack_bounds __attribute__((tls_model("initial-exec"))) = {0, 0};

StackBounds stack_bounds() noexcept {
  StackBounds bounds = t_stack_bounds;
  uint64_t limit[2];  // soft and hard, as the kernel's struct rlimit64
  if (bounds.high == 0 || bounds.low != 0 || syscall(SYS_prlimit64, 0, RLIMIT_STACK, nullptr, limit) != 0) return bounds;
  if (limit[0] < bounds.high) bounds.low = bounds.high - (limit[0] & ~4095ull);
  return bounds;
}

}  // namespace pytracer::crashsafe
