// The static memory in which the black box of a process begins, and the regions that every black box has.
#pragma once
#include "blackbox/layout.h"

#include <cstdint>

namespace pytracer::crashsafe {

/// Regions that every black box has, in its first mapping, and their bytes with the header.
inline constexpr uint32_t kCoreRegions = 2 + sizeof blackbox::kCrashRegions / sizeof blackbox::kCrashRegions[0];
uint64_t core_bytes() noexcept;

/// g_box shows the early memory, emptied except for the header. False: it did so before.
bool show_early_memory() noexcept;

/// What g_box shows, from the early memory or from room that was made for a report, is copied to `base`, which is new and zero; g_box
/// shows that afterwards.
void move_core_regions(char* base) noexcept;

}  // namespace pytracer::crashsafe
