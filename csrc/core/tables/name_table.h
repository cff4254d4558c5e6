// The tree of names in the black box: modules, and named tensors.
#pragma once
#include <cstdint>

namespace pytracer::core {

/// Updates the addresses of all named tensors, unless that was done so recently that it would take more than 1 part in 500 of the time.
void refresh_names_sometimes() noexcept;

/// In a forked child, whose black box has the parent's table.
void recount_names() noexcept;

}  // namespace pytracer::core
