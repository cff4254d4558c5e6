// The black box of this process as it begins: in memory, with a header.
#pragma once
#include "blackbox/layout.h"
#include "core/file/run_directory.h"

#include <cstdint>

namespace pytracer::core {

/// Notes where the black box will be created, below `directory`, and begins in memory. Refuses a directory as open_run_directory() does.
/// `most_boxes`: how many processes of the run may have one. `at_once`: no other process of this run was here before, or this one had a
/// black box before it executed: it is to be created now.
bool prepare_box(const char* directory, bool preloaded, uint32_t most_boxes, bool& at_once, Failure& failure) noexcept;

/// Members of the header that need no system call, or hardly one: many processes never have a file.
void write_identity(blackbox::FileHeader& header, bool preloaded, uint32_t page_bytes) noexcept;

}  // namespace pytracer::core
