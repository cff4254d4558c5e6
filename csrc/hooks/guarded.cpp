#include "guarded.h"

#include "who.h"

#include <c10/core/CPUAllocator.h>

namespace pytracer::hooks {
namespace {

// Asked once for both records of a free.
constinit thread_local Who t_frees __attribute__((tls_model("initial-exec"))) = {0, 0};
uint64_t who_frees(bool) { return static_cast<uint64_t>(t_frees.where) << 32 | t_frees.id; }

// torch's memory profiler is told about every storage: by what lies above c10::alloc_cpu, or by an allocator itself.
bool tells_profiler(blackbox::Origin origin) { return origin == blackbox::Origin::kCpuAllocator; }

}  // namespace

void* allocate_guarded(size_t nbytes, blackbox::Origin origin) noexcept {
  Who who = who_is_running_with_stack();
  void* data = pytracer_guard_allocate(nbytes, who.id, who.where);
  if (data == nullptr) return nullptr;
  pytracer_storage_allocated(data, nbytes, static_cast<uint32_t>(origin), who.id, who.where);
  if (tells_profiler(origin)) c10::profiledCPUMemoryReporter().New(data, nbytes);
  return data;
}

void free_guarded(void* data, blackbox::Origin origin) noexcept {
  t_frees = who_is_running_with_stack();
  pytracer_storage_freed(data, who_frees);
  if (tells_profiler(origin)) c10::profiledCPUMemoryReporter().Delete(data);
  pytracer_guard_free(data, t_frees.id, t_frees.where);
}

}  // namespace pytracer::hooks
