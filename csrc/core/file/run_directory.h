// The run directory: where the black boxes of a run and its counters lie.
#pragma once
#include "crashsafe/file/mapping.h"
#include "crashsafe/file/run_counters.h"

struct stat;

namespace pytracer::core {

using crashsafe::Failure;

/// Opens `directory`, which is created when missing, and notes it. Refuses one that others own or may write. `boxes`: of `boxes/` in it.
bool open_run_directory(const char* directory, struct stat& boxes, Failure& failure) noexcept;

/// The run directory, absolute; empty before it was opened.
const char* run_directory() noexcept;

/// Where the launcher's helper listens: PYTRACER_HELPER, else the run directory. Call it once, after the run directory was opened.
const char* helper_directory() noexcept;

/// The counters of the run; null when there are none.
RunCounters* run_counters() noexcept;

}  // namespace pytracer::core
