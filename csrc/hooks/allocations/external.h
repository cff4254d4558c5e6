// Storages in memory that torch's CPU allocators did not hand out, and storages that are older than the recording.
#pragma once
#include "blackbox/layout.h"

#include <Python.h>
#include <c10/core/Storage.h>

#include <cstdint>

namespace pytracer::hooks {

enum class Followed {
  kNoMemory,  ///< empty, or not the CPU's
  kKnown,     ///< in the tables already
  kYes,       ///< added now: its end will be seen
  kNo,        ///< its end could not be seen, so it is not added
};

/// Adds a storage that no hook saw when it was made. With a reference held, from any thread. `older`: it may have been there for
/// long, so that nobody knows who made it.
Followed follow(const c10::Storage& storage, bool older) noexcept;

/// What a look at objects that are there already found.
struct Older {
  size_t looked_at, followed, not_followed;
};

/// Adds the storages of the tensors and storages among `count` objects. Stops after `budget_ns`. With the GIL held.
Older follow_older(PyObject* const* objects, size_t count, uint64_t budget_ns);

/// Whether an at::MapAllocator, or what is derived from it, owns the memory.
bool is_mapped(const c10::DataPtr& data);

/// Adds a storage in memory that was mapped; `owner` is the at::MapAllocator.
void record_mapped(void* owner, const void* data, size_t nbytes, bool older) noexcept;

}  // namespace pytracer::hooks
