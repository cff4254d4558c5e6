// How many black boxes a run may have, and how much disk for them: counted by all its processes together (run_counters.h).
#pragma once
#include "crashsafe/file/run_counters.h"

#include <cstdint>

namespace pytracer::crashsafe {

/// Without counters (null) there is no budget, and nothing is counted.
void set_budget(RunCounters* counters, uint32_t most_boxes, uint64_t most_bytes) noexcept;
RunCounters* budget_counters() noexcept;

bool over_budget() noexcept;

/// A black box was created.
void count_box(uint64_t nbytes) noexcept;

/// There was something to record, but no black box.
void count_unrecorded(Unrecorded why) noexcept;

}  // namespace pytracer::crashsafe
