// The regions of the black box and its directory of them; the file grows by regions.
#pragma once
#include "blackbox/layout.h"
#include "crashsafe/platform/arch.h"

#include <cstddef>
#include <cstdint>

namespace pytracer::core {

inline constexpr size_t kPage = 4096;  ///< what is looked at, copied and released by itself: no less than this is
inline constexpr char kZeroPage[kPage] = {};
/// To the end of a page of whatever kernel runs.
constexpr size_t round_up_to_page(size_t n) { return (n + crashsafe::kLargestPage - 1) & ~(crashsafe::kLargestPage - 1); }

/// Appends a region, preallocated, and creates the black box when there is none. Null when there is no room in the file system or the
/// directory. Waits, at most 0.5 s, while another thread grows the file.
void* add_region(blackbox::RegionKind kind, uint32_t item_bytes, uint64_t items, uint32_t first_thread, uint32_t log2_slots) noexcept;

/// In a forked child: the thread that grew the file does not exist.
void forget_growth() noexcept;

/// The directory in the black box, and where its entry `index` is mapped: the regions that every black box has share the first mapping,
/// each other one has its own.
blackbox::RegionEntry* region_directory() noexcept;
char* region_at(uint32_t index) noexcept;

/// The file of this process's black box, opened again by name: programs close descriptors that they do not know. -1: it is gone.
int open_own_box() noexcept;

/// Puts empty private memory in the place of a mapping.
bool make_private(char* at, size_t nbytes) noexcept;

}  // namespace pytracer::core
