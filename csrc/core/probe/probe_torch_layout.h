// Where torch keeps what the crash handler follows, learned from objects whose addresses are known.
#pragma once
#include "core/core.h"

namespace pytracer::recorder {

/// See pytracer_learn_torch. Reads are checked ones, so the handlers must be installed.
bool learn_torch(const pytracer_torch_probe& learn, const pytracer_torch_probe& check) noexcept;

}  // namespace pytracer::recorder
