// External allocations: storages in memory that torch's CPU allocators did not allocate; and storages allocated before recording started.
#pragma once
#include "blackbox/layout.h"

#include <c10/core/Storage.h>

#include <cstdint>

struct _object;  // PyObject

namespace pytracer::hooks {

enum class Followed {
  kNoMemory,  ///< empty, or not the CPU's
  kKnown,     ///< in the tables already
  kYes,       ///< added now: its end will be recorded
  kNo,        ///< its end could not be observed, so it is not added
};

/// Adds a storage whose allocation no hook recorded. With a reference held, from any thread. `preexisting`: it may have been allocated
/// long ago, so that its call site is unknown.
Followed follow(const c10::Storage& storage, bool preexisting) noexcept;

/// Result of follow_preexisting().
struct Preexisting {
  size_t looked_at, followed, not_followed;
};

/// Adds the storages of the tensors and storages in a Python list. Stops after `budget_ns`. With the GIL held.
Preexisting follow_preexisting(_object* list, uint64_t budget_ns);

/// Whether an at::MapAllocator, or a class derived from it, owns the memory.
bool is_mapped(const c10::DataPtr& data);

/// Adds a storage in memory that was mapped; `owner` is the at::MapAllocator.
void record_mapped(void* owner, const void* data, size_t nbytes, bool preexisting) noexcept;

}  // namespace pytracer::hooks
