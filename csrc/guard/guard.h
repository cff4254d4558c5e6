// Guard mode: storages that lie against a page which faults, and that stay inaccessible after they are freed (docs/guide/guard.md).
// The core's part: which ones, where, how, and what is known of them. hooks/ brings torch's allocations here.
#pragma once
#include "guard/ledger.h"

#include <cstddef>
#include <cstdint>

struct pytracer_guard_settings;

namespace pytracer::guard {

/// Opens the pool, or changes the settings of the one that is there. 0, or an errno with `what` naming the step.
int open(const pytracer_guard_settings& settings, const char*& what) noexcept;

/// New storages are not guarded any more; those that are stay so, also in quarantine.
void pause() noexcept;

/// A guarded storage; null when a budget is used up or the kernel refuses, which is counted.
void* allocate(size_t nbytes, pytracer_who who) noexcept;

/// Whether release() is what frees this address.
bool owns(const void* at) noexcept;

/// Looks for damage beside the storage, then makes its pages inaccessible.
void release(void* at, pytracer_who who) noexcept;

/// For good: nothing more is guarded, and what is freed stays as it is. Stores only.
void stop() noexcept;

/// At the end of the process: damage beside storages that are still alive. Waits for nobody.
void look_at_live() noexcept;

/// In a forked child that does not record: storages stay guarded, and nothing is written about them.
void forget_box() noexcept;

}  // namespace pytracer::guard
