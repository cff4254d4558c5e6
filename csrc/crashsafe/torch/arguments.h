// Tensors that the crashed thread's native code works on: the arguments of the running operator, and what it made of them.
#pragma once

namespace pytracer::crashsafe {

/// Crash step, after the native stack and the memory map: writes ARGUMENTS.
void write_arguments() noexcept;

}  // namespace pytracer::crashsafe
