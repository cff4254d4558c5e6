// Starts and stops recording in this process, and carries it over fork.
#pragma once
#include "core/file/run_directory.h"
#include "crashsafe/file/create_file.h"

#include <atomic>
#include <cstdint>

namespace pytracer::core {

inline constexpr uint32_t kAnnounce = 1;
inline constexpr uint32_t kDebugged = 2;  // a debugger traces the process

inline constexpr uint32_t kMostBoxes = 4096;  ///< of a run, unless it is given another number

/// Prepares the black box, writes the first facts, arms this thread's alternate stack, installs the handlers. Without preload, and for the
/// first process of a run, the black box is created at once, otherwise when there is something to record. True with a `failure`: it could
/// not be created. `preloaded_into`: main()'s arguments, null without preload.
bool start(const char* directory, uint32_t flags, const char* const* preloaded_into, uint32_t most_boxes, Failure& failure) noexcept;

/// disable() and enable() of the program: handlers uninstalled and installed, in the same black box.
void stop() noexcept;
void resume() noexcept;
bool stopped() noexcept;

/// Ends recording for good: nothing more is written to the black box. Stores only: no system call is made.
void abandon_recording() noexcept;

/// Inline, for every record. Hidden here, too: -fvisibility is for definitions.
extern std::atomic<bool> g_recording __attribute__((visibility("hidden")));
inline bool recording() noexcept { return g_recording.load(std::memory_order_acquire); }

/// Whether a crash is announced on stderr.
bool announces() noexcept;

/// Command line and environment in the black box are the parent's, which may differ from this process's.
extern std::atomic<bool> g_facts_are_parents __attribute__((visibility("hidden")));
void replace_parents_facts() noexcept;

/// Creates the black box now, whatever the budget of the run. False when there is none.
inline bool create_black_box() noexcept {
  if (!crashsafe::ensure_box(crashsafe::Need::kMust)) return false;
  if (g_facts_are_parents.load(std::memory_order_relaxed)) replace_parents_facts();
  return true;
}

/// Whether a debugger traces this process.
bool is_debugged() noexcept;

}  // namespace pytracer::core
