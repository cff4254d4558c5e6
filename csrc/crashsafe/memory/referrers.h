// Referrers at the crash: which Python variables refer to which storages, and which storages autograd nodes save for backward.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

/// The autograd node that runs on the crashed thread; 0: none, or unknown. The search for saved tensors begins there.
void set_running_node(uint64_t node) noexcept;

/// Crash step, after write_python_stacks: writes HOLDERS. Tensors in local variables, cells and module globals of the frames, the crashed
/// thread's first, and one or two levels down in lists, tuples, dicts and attributes; the whole numbers of the innermost frames; then what autograd
/// nodes saved.
void write_referrers() noexcept;

}  // namespace pytracer::crashsafe
