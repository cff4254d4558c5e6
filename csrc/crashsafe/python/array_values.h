// The numbers in arrays of NumPy that the program's variables hold: what its native code is given is as often such an array as a tensor.
#pragma once
#include "crashsafe/memory/elements.h"

#include <cstdint>

namespace pytracer::crashsafe {

/// After write_referrers(): adds to HOLDERS, for the arrays that it kept. `may_be_read`: whether reading at an address waits for no device.
void write_array_values(ElementTime& time, bool (*may_be_read)(uint64_t)) noexcept;

}  // namespace pytracer::crashsafe
