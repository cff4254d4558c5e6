// Starts and stops recording in this process, and carries it over fork and exit.
#pragma once
#include "core/file/box_file.h"

#include <cstdint>

struct rusage;

namespace pytracer::recorder {

inline constexpr uint32_t kAnnounce = 1;
inline constexpr uint32_t kDebugged = 2;  // somebody ptraces the process

inline constexpr uint32_t kMostBoxes = 4096;  ///< of a run, when nobody says otherwise

/// Prepares the box, writes the first facts, arms this thread's alternate stack, installs the handlers. Without preload, and for the
/// first process of a run, the box is made at once, else when there is something to record. True with a `failure`: it could not be made.
/// `preloaded_into`: main()'s arguments, null without preload.
bool start(const char* directory, uint32_t flags, const char* const* preloaded_into, uint32_t most_boxes, Failure& failure) noexcept;

/// Nothing is recorded any more, for good. Stores only: no system call is made. The program goes on.
void abandon_recording() noexcept;
bool recording() noexcept;
/// disable() was called.
bool stopped() noexcept;
void set_stopped(bool stopped) noexcept;

/// Nothing is recorded any more, for good, and nothing is written to the box. Stores only: no system call is made.
void abandon_recording() noexcept;
bool announces() noexcept;

/// Makes the box now, whatever the budget of the run. False when there is none.
bool make_box() noexcept;

/// exit() or, `at_once`, _exit() was called.
void note_exit(int code, bool at_once) noexcept;

/// A child of this process was reaped. `usage`: what it used, or null when the call did not say.
void note_wait(int pid, int status, int code, bool via_waitid, const struct rusage* usage) noexcept;

}  // namespace pytracer::recorder
