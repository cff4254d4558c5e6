// Starts and stops recording in this process, and carries it over fork and exit.
#pragma once
#include "box_file.h"

#include <cstdint>

namespace pytracer::recorder {

inline constexpr uint32_t kAnnounce = 1;

/// Opens the box, writes the first facts, arms this thread's alternate stack, installs the handlers.
bool start(const char* directory, uint32_t flags, bool preloaded, Failure& failure) noexcept;
bool recording() noexcept;
bool announces() noexcept;

/// exit() or _exit() was called.
void note_exit(int code) noexcept;

/// A child of this process was reaped.
void note_wait(int pid, int status, int code, bool via_waitid) noexcept;

}  // namespace pytracer::recorder
