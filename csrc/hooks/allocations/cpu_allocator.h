// Storages of torch's own CPU allocator, and what the hooks of other allocators share with it.
#pragma once
#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/support/call_site.h"

#include <c10/core/Allocator.h>

#include <cstddef>

namespace pytracer::hooks {

/// Whether allocation and free of every storage of torch's own CPU allocator are intercepted.
bool default_allocator_is_intercepted() noexcept;

/// Another allocator is the registered one, and wrapped: memory that it gets from torch's own is not another storage.
void set_another_wrapped(bool wrapped) noexcept;

/// Marks a call of the wrapped allocator.
class InsideAnother {
 public:
  InsideAnother() noexcept;
  ~InsideAnother();

 private:
  bool before_;
};

/// Whether this is the deleter of torch's own CPU allocator, or of a wrapped one.
bool is_cpu_deleter(c10::DeleterFnPtr deleter) noexcept;

/// Adds a storage of an allocator to the table.
inline void record_storage(const void* data, size_t nbytes, blackbox::Origin origin) {
  CallSite site = __builtin_expect(nbytes >= blackbox::kLargeStorageBytes, 0) ? detailed_call_site() : current_call_site();
  pytracer_storage_allocated(data, nbytes, static_cast<uint32_t>(origin), site);
}

/// It is freed; before its memory is released.
inline void record_free(const void* data) { pytracer_storage_freed(data, current_call_site(), detailed_call_site); }

}  // namespace pytracer::hooks
