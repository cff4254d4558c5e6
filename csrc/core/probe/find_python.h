// Where CPython is in this process. Outside the crash path, because it asks the dynamic linker.
#pragma once

namespace pytracer::recorder {

/// CPython was linked to the program, or loaded with it. Costs nothing.
bool python_is_linked() noexcept;

/// Looks for CPython and hands its addresses to crashsafe/python/python_stack.h; cheap and repeatable. Returns its minor version,
/// 0 when there is none that we know.
int find_python() noexcept;

}  // namespace pytracer::recorder
