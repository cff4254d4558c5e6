#include "hooks/allocations/guarded.h"

#include "hooks/support/call_site.h"

#include <c10/core/CPUAllocator.h>

namespace pytracer::hooks {

void* allocate_guarded(size_t nbytes, blackbox::Origin origin, Tell tell) noexcept {
  Who who = who_is_running_with_stack();
  void* data = pytracer_guard_allocate(nbytes, who);
  if (data == nullptr) return nullptr;
  pytracer_storage_allocated(data, nbytes, static_cast<uint32_t>(origin), who);
  if (tell == Tell::kProfiler) c10::profiledCPUMemoryReporter().New(data, nbytes);
  return data;
}

void free_guarded(void* data, Tell tell) noexcept {
  Who who = who_is_running_with_stack();
  pytracer_storage_freed(data, who, nullptr);
  if (tell == Tell::kProfiler) c10::profiledCPUMemoryReporter().Delete(data);
  pytracer_guard_free(data, who);
}

}  // namespace pytracer::hooks
