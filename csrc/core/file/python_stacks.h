// The Python lines of the calling thread, as entries of the journal.
#pragma once
#include <cstdint>

namespace pytracer::core {

/// The id of a STACK entry with at most 12 Python lines of this thread, innermost first; an equal stack has one entry. 0: the thread
/// runs no Python, another thread writes its own at this moment, nothing can be written, or it is a new one and the process has `most`
/// already. Callable in signal handlers; in a process that may not read its own memory it is 0.
uint32_t python_stack_entry(uint32_t most) noexcept;

/// In a forked child: its journal may not have the entries of its parent's.
void forget_python_stacks() noexcept;

}  // namespace pytracer::core
