// The file behind g_box: made, mapped at a fixed reservation, grown by regions, replaced in a forked child.
#pragma once
#include "../crashsafe/box.h"

#include <cstddef>
#include <cstdint>

namespace pytracer::recorder {

/// Why a box could not be made: a step and an errno. Text lives for ever.
struct Failure {
  const char* what = nullptr;
  int error = 0;
};

/// Makes `<directory>/boxes/<host>.<pid>.blackbox` and maps it; fills g_box. `directory` is created when missing.
/// On failure g_box is unchanged.
bool open_box(const char* directory, bool preloaded, Failure& failure) noexcept;

/// Appends a region, preallocated. Null when there is no room in the file system, the directory or the reservation.
/// Waits, at most 0.5 s, while another thread grows the file.
void* add_region(blackbox::RegionKind kind, uint32_t item_bytes, uint64_t items, uint32_t first_thread, uint32_t log2_slots) noexcept;

/// In a forked child: maps a file of its own over the parent's, with the parent's journal and live storages copied.
/// When no file can be made, private memory replaces the mapping, so that nothing is written to the parent's box.
void reopen_after_fork() noexcept;

/// This process is one of many of its kind: when it ends well, its box keeps only who it was, how it ended, records and collectives.
void keep_little() noexcept;

/// Gives disk blocks back when the process calls exit(): those of a process that recorded nothing of its own, and of one that
/// keeps little and ends well. Killed in between, the box holds more, and nothing wrong.
void trim_at_exit(int code) noexcept;

/// Path of this process's file; empty when there is none.
const char* box_path() noexcept;
const char* run_directory() noexcept;

}  // namespace pytracer::recorder
