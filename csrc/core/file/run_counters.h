// The counters that all processes of a run on this host share (crashsafe/file/run_counters.h).
#pragma once
#include "crashsafe/file/run_counters.h"

namespace pytracer::core {

/// Maps the counters of the run whose directory is open as `run`; makes them when there are none. Null when that is refused.
RunCounters* open_run_counters(int run, const char* host) noexcept;

/// Those of the run in `directory`, by name. Null when there are none yet, or none that can be trusted.
RunCounters* find_run_counters(const char* directory, const char* host) noexcept;

/// Counts this process, and notes its name. Returns how many there were before.
uint32_t count_process(RunCounters& counters) noexcept;

}  // namespace pytracer::core
