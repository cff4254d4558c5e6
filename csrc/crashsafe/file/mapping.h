// The parts of the black box's file that are mapped, and the space on disk behind them.
#pragma once
#include "blackbox/layout.h"

#include <atomic>
#include <cstdint>

namespace pytracer::crashsafe {

/// Why something about the file failed: a step and an errno. The text is never freed.
struct Failure {
  const char* what = nullptr;
  int error = 0;
};

/// One mapping of the black box; the first one holds the regions that every black box has.
struct BoxMapping {
  char* at = nullptr;
  uint64_t offset = 0, nbytes = 0;
};
inline constexpr uint32_t kBoxMappings = blackbox::kRegionLimit;

/// The mappings; written by the holder of BoxGate, or in a forked child.
extern BoxMapping box_mappings[kBoxMappings];
extern std::atomic<uint32_t> box_mapping_count;
extern uint64_t box_file_bytes;

/// Page size of the kernel, set before there is a file.
extern uint64_t page_bytes;

/// Never sparse: on a full disk a store into a hole kills the process with SIGBUS.
bool preallocate(int descriptor, uint64_t from, uint64_t nbytes, Failure& failure) noexcept;

/// Maps a part of the file, shared; at `at` when that is not null. Null when refused.
void* map_box(int descriptor, void* at, uint64_t from, uint64_t nbytes) noexcept;

/// What is ours does not count as memory that the program has locked; for mappings that exist, and those to come.
void unlock_mappings() noexcept;

/// A store found no page behind a mapping of ours: the file was truncated, or its disk is full. Puts private memory there, so that the
/// program continues; the contents of the page are lost to the reader. False when `addr` is not ours.
bool replace_lost_page(uint64_t addr) noexcept;

}  // namespace pytracer::crashsafe
