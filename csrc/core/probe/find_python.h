// Finds CPython in this process. Outside the crash path, because it calls the dynamic linker.
#pragma once

namespace pytracer::core {

/// CPython was linked to the program, or loaded with it. Costs nothing.
bool python_is_linked() noexcept;

/// Looks for CPython and hands its addresses to crashsafe/python/python_stack.h; cheap and repeatable. Returns its minor version,
/// 0 when there is none of a known version.
int find_python() noexcept;

}  // namespace pytracer::core
