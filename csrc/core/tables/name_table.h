// The tree of names in the box: modules, and tensors that have a name.
#pragma once
#include <cstdint>

namespace pytracer::recorder {

/// Looks where all named tensors lie, unless that was done so recently that it would take more than 1 part in 500 of the time.
void refresh_names_sometimes() noexcept;

/// In a forked child, whose box has the parent's table.
void recount_names() noexcept;

}  // namespace pytracer::recorder
