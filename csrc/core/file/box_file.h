// The box behind g_box, outside of handlers: prepared at the start, grown by regions, left to the parent by a forked child, and cut
// down when the process ends well. crashsafe/file/create_file.h makes the file.
#pragma once
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"

#include <cstddef>
#include <cstdint>

namespace pytracer::recorder {

using crashsafe::Failure;

/// Notes where the box will be made, below `directory`, which is created when missing, and begins in memory. Refuses a directory that
/// others own or may write. `most_boxes`: how many processes of the run may have one. `at_once`: no other process of this run was here
/// before, or this one had a box before it executed: its box is to be made now.
bool prepare_box(const char* directory, bool preloaded, uint32_t most_boxes, bool& at_once, Failure& failure) noexcept;

/// Appends a region, preallocated, and makes the box when there is none. Null when there is no room in the file system or the
/// directory. Waits, at most 0.5 s, while another thread grows the file.
void* add_region(blackbox::RegionKind kind, uint32_t item_bytes, uint64_t items, uint32_t first_thread, uint32_t log2_slots) noexcept;

/// The journal holds what a forked child has in common with this process; it keeps that.
void note_common_facts() noexcept;

/// In a forked child: what it has of its parent's box becomes private memory, with the journal and the live storages where the parent
/// has tables (`copied`), else with the common facts alone. False when there is no memory for that: empty_box() is all that is left.
bool leave_box_to_parent(bool& copied) noexcept;

/// In a forked child: the parent's mappings become empty private memory, which costs no address space. False: not even that, and g_box
/// shows a box without regions.
bool empty_box() noexcept;

/// This process is one of many of its kind: when it ends well, its box keeps only who it was, how it ended, records and collectives.
void keep_little() noexcept;

/// Gives disk blocks back when the process calls exit(): those of a process that recorded nothing of its own, and of one that
/// keeps little and ends well. Killed in between, the box holds more, and nothing wrong.
void trim_at_exit(int code) noexcept;

/// The counters of the run; null when there are none.
RunCounters* run_counters() noexcept;

/// The run directory, absolute; empty before the start.
const char* run_directory() noexcept;

}  // namespace pytracer::recorder
