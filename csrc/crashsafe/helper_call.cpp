#include "helper_call.h"

#include "box.h"
#include "other_threads.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <atomic>
#include <climits>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint64_t kNobodyNs = 30'000'000;  // no one was waiting at the bell: it may be busy with another process
constexpr uint64_t kStopNs = 600'000'000;   // the helper gives up before (helper.cpp)
constexpr uint64_t kReleaseNs = 200'000'000;

Doorbell* bell = nullptr;
const char* own_box = nullptr;

std::atomic_ref<uint32_t> state() { return std::atomic_ref(g_box.crash.data->helper_state); }

void wake(void* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// Until the state is no longer `seen`, or `until`.
void wait_while(HelperState seen, uint64_t until) {
  for (uint64_t now = now_ns(); now < until && state().load(std::memory_order_acquire) == static_cast<uint32_t>(seen); now = now_ns()) {
    timespec slice{0, until - now < 20'000'000 ? static_cast<long>(until - now) : 20'000'000};
    syscall(SYS_futex, &g_box.crash.data->helper_state, FUTEX_WAIT, static_cast<uint32_t>(seen), &slice, nullptr, 0);
  }
}

DoorbellSlot* free_slot() {
  for (DoorbellSlot& slot : bell->slots) {
    int32_t nobody = 0;
    if (slot.pid.compare_exchange_strong(nobody, -1, std::memory_order_acq_rel)) return &slot;
  }
  return nullptr;
}

}  // namespace

void set_doorbell(Doorbell* doorbell, const char* box_name) noexcept {
  own_box = box_name;
  bell = doorbell;
}

bool helper_stops_threads() noexcept {
  if (bell == nullptr || own_box == nullptr || strlen(own_box) >= kBoxNameBytes) return false;
  int helper = bell->helper_pid.load(std::memory_order_acquire);
  DoorbellSlot* slot = helper > 0 ? free_slot() : nullptr;
  if (slot == nullptr) return false;
  prctl(PR_SET_PTRACER, helper, 0, 0, 0);  // Yama lets a sibling trace us only when we say so; elsewhere it is refused
  memcpy(slot->box, own_box, strlen(own_box) + 1);
  state().store(static_cast<uint32_t>(HelperState::kAsked), std::memory_order_release);
  slot->pid.store(g_box_pid, std::memory_order_release);
  bell->rings.fetch_add(1, std::memory_order_release);
  uint64_t start = now_ns();
  if (syscall(SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0) <= 0) {
    while (slot->pid.load(std::memory_order_acquire) == g_box_pid && now_ns() - start < kNobodyNs) {
      timespec t{0, 500'000};
      syscall(SYS_nanosleep, &t, nullptr);
    }
    int32_t mine = g_box_pid;
    if (slot->pid.compare_exchange_strong(mine, 0, std::memory_order_acq_rel)) return false;
  }
  wait_while(HelperState::kAsked, start + kStopNs);
  int32_t mine = g_box_pid;
  slot->pid.compare_exchange_strong(mine, 0, std::memory_order_acq_rel);
  if (state().load(std::memory_order_acquire) == static_cast<uint32_t>(HelperState::kStopped)) return true;
  // Too late or refused: whoever stopped them lets them go when it reads this.
  state().store(static_cast<uint32_t>(HelperState::kRelease), std::memory_order_release);
  wake(&g_box.crash.data->helper_state);
  return false;
}

void release_helper() noexcept {
  state().store(static_cast<uint32_t>(HelperState::kRelease), std::memory_order_release);
  wake(&g_box.crash.data->helper_state);
  wait_while(HelperState::kRelease, now_ns() + kReleaseNs);
}

}  // namespace pytracer::crashsafe
