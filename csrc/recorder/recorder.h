// Starts and stops recording in this process, and carries it over fork and exit.
#pragma once
#include "box_file.h"

#include <cstdint>

struct rusage;

namespace pytracer::recorder {

inline constexpr uint32_t kAnnounce = 1;

/// Opens the box, writes the first facts, arms this thread's alternate stack, installs the handlers.
bool start(const char* directory, uint32_t flags, bool preloaded, Failure& failure) noexcept;
bool recording() noexcept;
bool announces() noexcept;

/// exit() or, `at_once`, _exit() was called.
void note_exit(int code, bool at_once) noexcept;

/// A child of this process was reaped. `usage`: what it used, or null when the call did not say.
void note_wait(int pid, int status, int code, bool via_waitid, const struct rusage* usage) noexcept;

}  // namespace pytracer::recorder
