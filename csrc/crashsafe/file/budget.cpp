#include "crashsafe/file/budget.h"

namespace pytracer::crashsafe {
namespace {

RunCounters* counters = nullptr;
uint32_t most_boxes = 0;
uint64_t most_bytes = 0;

}  // namespace

void set_budget(RunCounters* shared, uint32_t boxes, uint64_t nbytes) noexcept {
  counters = shared;
  most_boxes = boxes;
  most_bytes = nbytes;
}

RunCounters* budget_counters() noexcept { return counters; }

bool over_budget() noexcept { return counters != nullptr && (counters->boxes.load() >= most_boxes || counters->box_bytes.load() >= most_bytes); }

void count_box(uint64_t nbytes) noexcept {
  if (counters == nullptr) return;
  counters->boxes.fetch_add(1, std::memory_order_relaxed);
  counters->box_bytes.fetch_add(nbytes, std::memory_order_relaxed);
}

void count_unrecorded(Unrecorded why) noexcept {
  if (counters != nullptr) counters->unrecorded[static_cast<uint32_t>(why)].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace pytracer::crashsafe
