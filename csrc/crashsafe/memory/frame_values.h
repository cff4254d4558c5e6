// Values at an end: what the program's own variables were when a process was asked to end, or for its stacks.
#pragma once

namespace pytracer::crashsafe {

/// Part of the step HOLDERS of a process that did not crash, after write_python_stacks: numbers, truth values, None and lengths in the
/// variables of the frames that are no library's, of the thread that was interrupted, and down to two steps below these variables. What
/// ranks that stand still disagree about is among them. Nothing where values are not to be recorded.
void write_values() noexcept;

}  // namespace pytracer::crashsafe
