// Finds the offsets of torch's private members that the crash handler follows, with objects whose addresses are known.
#pragma once
#include "core/core.h"

namespace pytracer::core {

/// See pytracer_probe_torch_layout. Reads are checked ones, so the handlers must be installed.
bool probe_torch_layout(const pytracer_torch_probe& learn, const pytracer_torch_probe& check) noexcept;

}  // namespace pytracer::core
