// torch's CPU storages in guard mode: what allocation and free do instead of calling the allocator.
#pragma once
#include "blackbox/layout.h"
#include "core/core.h"

#include <c10/core/Allocator.h>

namespace pytracer::hooks {

/// torch's memory profiler gets every storage: from the allocator above c10::alloc_cpu, or from us in place of another one.
enum class Notify { kNobody, kProfiler };

void* allocate_guarded(size_t nbytes, blackbox::Origin origin, Notify notify) noexcept;
void free_guarded(void* data, Notify notify) noexcept;

/// The storage's memory, against a guard page; null when it is not chosen, or cannot be guarded now.
inline void* guarded(size_t nbytes, blackbox::Origin origin, Notify notify) noexcept {
  if (__builtin_expect((__atomic_load_n(&pytracer_guarding, __ATOMIC_RELAXED) & 1) == 0, 1)) return nullptr;
  return pytracer_guard_chooses(nbytes) != 0 ? allocate_guarded(nbytes, origin, notify) : nullptr;
}

/// By its address: raw_deleter() promises one function for all. Guarded storages outlive the recording.
inline bool is_guarded(const void* data) noexcept {
  return __builtin_expect(__atomic_load_n(&pytracer_guarding, __ATOMIC_RELAXED) != 0, 0) && pytracer_guard_owns(data) != 0;
}

}  // namespace pytracer::hooks
