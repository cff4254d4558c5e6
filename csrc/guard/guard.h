// Guard mode: storages that lie against a page which faults, and that stay inaccessible after they are freed (docs/guide/guard.md).
// This is its interface, which the core calls; hooks/ routes torch's allocations here through the core. Nothing here includes the core.
#pragma once
#include "blackbox/layout.h"

#include <cstddef>
#include <cstdint>

/// Bit 0: new storages may be guarded; bit 1: guarded ones exist. Also declared in core/core.h, for hooks/.
extern "C" __attribute__((visibility("default"))) int pytracer_guarding;

namespace pytracer::guard {

/// One in `every` storages of `min_bytes` and more; `records` are kept, including quarantined ones.
struct Settings {
  uint64_t every = 0, min_bytes = 0, budget_bytes = 0, budget_mappings = 0;
  uint32_t alignment = 64, records = 0;
  bool underrun = false, protection_only = false;
};

/// What guard mode needs from the core.
struct Host {
  void* (*add_region)(blackbox::RegionKind kind, uint32_t item_bytes, uint64_t items, uint32_t first_thread, uint32_t log2_slots) noexcept;
  uint32_t (*append)(blackbox::EntryKind kind, const void* data, size_t nbytes) noexcept;
  void (*note)(blackbox::CoreNote code, uint64_t addr, uint64_t value) noexcept;
};

/// Which code allocated or freed: a journal id, and the place in it.
struct CallSite {
  uint32_t id, where;
};

/// Opens the pool, or changes the settings of the one that is there. 0, or an errno with `what` naming the step.
int open(const Settings& settings, const Host& host, const char*& what) noexcept;

/// No new storages are guarded; existing ones stay guarded, also in quarantine.
void pause() noexcept;

/// Whether this kernel has MADV_GUARD_INSTALL: 0, or the errno.
int missing_markers() noexcept;

/// Whether the storage that is about to be allocated is to be guarded. Two nanoseconds.
bool chosen(size_t nbytes) noexcept;

/// A guarded storage; null when a budget is used up or the kernel refuses, which is counted.
void* allocate(size_t nbytes, CallSite site) noexcept;

/// Whether release() is what frees this address.
bool owns(const void* at) noexcept;

/// Looks for damage beside the storage, then makes its pages inaccessible.
void release(void* at, CallSite site) noexcept;

/// For good: no new storages are guarded, and freed ones are not touched. Stores only.
void stop() noexcept;

/// At the end of the process: damage beside storages that are still live. Waits for no other thread.
void look_at_live() noexcept;

/// In a forked child that does not record: storages stay guarded, and nothing is written about them.
void forget_box() noexcept;

}  // namespace pytracer::guard
