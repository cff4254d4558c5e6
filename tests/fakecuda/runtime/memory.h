// What cudaMalloc handed out.
#pragma once
#include <cstddef>
#include <cstdint>

namespace fakecuda {

/// The live allocation around a device address. With the lock held.
bool find_allocation(uintptr_t addr, uintptr_t& base, size_t& nbytes);

}  // namespace fakecuda
