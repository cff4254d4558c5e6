// One request: the threads of one dying process.
#pragma once
#include "helper/caller.h"

namespace pytracer::helper {

/// Stops every thread of the caller but the one that asks, sends it their registers, and lets them go when it says so, ends, or
/// takes too long; one that says that it dies keeps them stopped until then, some seconds at most. What it may not trace is answered with the errno.
void stop_threads(const Caller& caller) noexcept;

/// Answers that nothing is stopped.
void refuse(int connection, int error) noexcept;

}  // namespace pytracer::helper
