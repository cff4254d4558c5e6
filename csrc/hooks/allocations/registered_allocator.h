// Of the wrapper around a CPU allocator that is not torch's own.
#pragma once
#include <c10/core/Allocator.h>

namespace pytracer::hooks {

/// Whether data of a wrapped allocator has this deleter: ours, or its original one.
bool is_wrapped_deleter(c10::DeleterFnPtr deleter) noexcept;

}  // namespace pytracer::hooks
