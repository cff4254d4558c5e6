#include "crashsafe/file/box_gate.h"

#include "crashsafe/file/create_file.h"
#include "crashsafe/platform/sys.h"

#include <atomic>

namespace pytracer::crashsafe {
namespace {

constexpr int kWaits = 5000;  // of 0.1 ms: a loaded disk takes its time to preallocate

std::atomic<int> holder{0};  // its thread

}  // namespace

bool close_gate() noexcept {
  int tid = sys_gettid();
  for (int waits = 0;; waits++) {
    int nobody = 0;
    if (holder.compare_exchange_strong(nobody, tid, std::memory_order_acquire)) return true;
    if (nobody == tid || waits == kWaits) return false;
    timespec t{0, 100'000};
    syscall(SYS_nanosleep, &t, nullptr);
  }
}

void open_gate() noexcept {
  if (holder.load(std::memory_order_relaxed) == 0) return;
  int tid = sys_gettid();
  holder.compare_exchange_strong(tid, 0, std::memory_order_release);
}

void forget_gate() noexcept { holder.store(0, std::memory_order_relaxed); }

BoxGate::BoxGate() noexcept : held_(!has_box() && close_gate()), open_(held_ || has_box()) {}
BoxGate::~BoxGate() {
  if (held_) open_gate();
}

}  // namespace pytracer::crashsafe
