// The current CUDA stream of a record's thread. A load and a branch where the process does not use CUDA.
#pragma once
#include "blackbox/layout.h"
#include "core/core_cuda.h"

namespace pytracer::hooks {

inline void note_stream(blackbox::NodeRecord& record) noexcept {
  pytracer_stream here{};
  if (pytracer_current_stream(&here) == 0) return;
  record.device = here.device + 1;
  record.stream = here.stream;
}

}  // namespace pytracer::hooks
