// Of the wrapper around a CPU allocator that is not torch's own.
#pragma once
#include <c10/core/Allocator.h>

namespace pytracer::hooks {

/// Whether data of a wrapped allocator goes with this deleter: ours, or the one that it had before.
bool is_wrapped_deleter(c10::DeleterFnPtr deleter) noexcept;

}  // namespace pytracer::hooks
