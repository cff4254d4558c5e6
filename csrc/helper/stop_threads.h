// One request: the threads of one dying process.
#pragma once

namespace pytracer::helper {

/// Stops every thread of `pid` but the crashed one, writes THREAD_STACKS of the black box at `path`, and lets them go when the
/// process says so. Refuses, by HelperState and errno in the box, what is not a dying process of that pid.
void serve_request(const char* path, int pid) noexcept;

}  // namespace pytracer::helper
