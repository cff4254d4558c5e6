// One request: the threads of one dying process.
#pragma once
#include "helper/caller.h"

namespace pytracer::helper {

/// Stops every thread of the caller except the requesting one, sends it their registers, and releases them when the caller asks for it,
/// ends, or takes too long; a caller that is dying keeps them stopped until it is gone, some seconds at most. Where tracing is refused,
/// the answer is the errno.
void stop_threads(const Caller& caller) noexcept;

/// Answers that nothing is stopped.
void refuse(int connection, int error) noexcept;

}  // namespace pytracer::helper
