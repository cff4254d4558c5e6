#include "hooks/allocations/guarded.h"

#include "hooks/support/call_site.h"

#include <c10/core/CPUAllocator.h>

namespace pytracer::hooks {

void* allocate_guarded(size_t nbytes, blackbox::Origin origin, Notify notify) noexcept {
  CallSite site = call_site_with_stack();
  void* data = pytracer_guard_allocate(nbytes, site);
  if (data == nullptr) return nullptr;
  pytracer_storage_allocated(data, nbytes, static_cast<uint32_t>(origin), site);
  if (notify == Notify::kProfiler) c10::profiledCPUMemoryReporter().New(data, nbytes);
  return data;
}

void free_guarded(void* data, Notify notify) noexcept {
  CallSite site = call_site_with_stack();
  pytracer_storage_freed(data, site, nullptr);
  if (notify == Notify::kProfiler) c10::profiledCPUMemoryReporter().Delete(data);
  pytracer_guard_free(data, site);
}

}  // namespace pytracer::hooks
