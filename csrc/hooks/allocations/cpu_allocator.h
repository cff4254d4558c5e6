// Storages of torch's own CPU allocator, and what the hooks around other allocators share with it.
#pragma once
#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/support/call_site.h"

#include <c10/core/Allocator.h>

#include <cstddef>

namespace pytracer::hooks {

/// Whether each storage of torch's own CPU allocator is seen, at both ends.
bool torchs_own_is_seen() noexcept;

/// Another allocator is the registered one, and wrapped: what torch's own hands out inside of it is not another storage.
void set_another_wrapped(bool wrapped) noexcept;

/// Marks a call of the wrapped allocator.
class InsideAnother {
 public:
  InsideAnother() noexcept;
  ~InsideAnother();

 private:
  bool before_;
};

/// Whether data of torch's own CPU allocator, or of a wrapped one, goes with this deleter.
bool is_cpu_deleter(c10::DeleterFnPtr deleter) noexcept;

/// Adds a storage of an allocator to the table.
inline void record_storage(const void* data, size_t nbytes, blackbox::Origin origin) {
  Who who = __builtin_expect(nbytes >= blackbox::kLargeStorageBytes, 0) ? who_is_running_in_detail() : who_is_running();
  pytracer_storage_allocated(data, nbytes, static_cast<uint32_t>(origin), who);
}

/// It ends now; before its memory is given back.
inline void record_free(const void* data) { pytracer_storage_freed(data, who_is_running(), who_is_running_in_detail); }

}  // namespace pytracer::hooks
