// What the hooks around torch's CPU allocators share.
#pragma once
#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>

namespace pytracer::hooks {

/// True while the calling thread is inside the registered allocator, which calls the default one below it: that is not another
/// storage.
extern constinit thread_local bool t_inside_allocator __attribute__((tls_model("initial-exec")));

/// Marks a call of the registered allocator.
class InsideAllocator {
 public:
  InsideAllocator() : before_(t_inside_allocator) { t_inside_allocator = true; }
  ~InsideAllocator() { t_inside_allocator = before_; }

 private:
  bool before_;
};

/// Whether the registered allocator's hook handed it out, and so has recorded it, when hooks were on.
bool is_recorded(const c10::DataPtr& data) noexcept;

/// Whether data of the registered allocator, or of the one below it, goes with this deleter.
bool is_cpu_deleter(c10::DeleterFnPtr deleter) noexcept;

/// Who frees, for pytracer_storage_freed.
uint64_t who_frees(bool large);

/// Adds a storage of the CPU allocators to the table; `origin` as blackbox::Origin.
void record_storage(const void* data, size_t nbytes, uint32_t origin);

}  // namespace pytracer::hooks
