#include "crashsafe/signals/stand_ins.h"

#include <atomic>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

static_assert(sizeof kFaults / sizeof kFaults[0] == 6);

constinit std::atomic<uint64_t> hidden{0};

// A set without its neighbours is the program's own choice of a few signals; with all of them it is "every signal".
constexpr uint64_t kNeighbours = 3ull << (kFirstStandIn - 3) | 3ull << (kFirstStandIn + 5);

}  // namespace

uint64_t hidden_faults() noexcept { return hidden.load(std::memory_order_relaxed); }
void hide_faults(uint64_t faults) noexcept { hidden.store(faults, std::memory_order_relaxed); }

uint64_t stand_ins_of(uint64_t faults) noexcept {
  uint64_t found = 0;
  if ((faults & kFaultSignals) == 0) return 0;
  for (int i = 0; i < 6; i++) found |= (faults >> (kFaults[i] - 1) & 1) << (kFirstStandIn - 1 + i);
  return found;
}

uint64_t believed_blocked(uint64_t mask) noexcept {
  uint64_t found = 0;
  if ((mask & kStandIns) == 0) return 0;
  for (int i = 0; i < 6; i++) found |= (mask >> (kFirstStandIn - 1 + i) & 1) << (kFaults[i] - 1);
  return found & hidden_faults();
}

uint64_t to_kernel(uint64_t set) noexcept {
  uint64_t ours = hidden_faults();
  return (set & ~(ours | stand_ins_of(ours))) | stand_ins_of(set & ours);
}

uint64_t from_kernel(uint64_t mask) noexcept {
  uint64_t ours = hidden_faults();
  if (ours == 0) return mask;
  bool all = (mask & kNeighbours) == kNeighbours;
  uint64_t seen = (mask & ~stand_ins_of(ours)) | believed_blocked(mask);
  return all ? seen | stand_ins_of(ours) : seen;
}

bool defer_signal(int signal, siginfo_t* info, ucontext_t* context) noexcept {
  uint64_t mask;
  memcpy(&mask, &context->uc_sigmask, sizeof mask);
  // Its target: this thread (raise, pthread_kill), or the process, which the id of any of its threads identifies; with the pid the
  // kernel refuses the siginfo of kill() from all but the main thread. Blocked here until the handler returns.
  int tid = sys_gettid();
  long error =
      info->si_code == SI_TKILL ? syscall(SYS_rt_tgsigqueueinfo, sys_getpid(), tid, signal, info) : syscall(SYS_rt_sigqueueinfo, tid, signal, info);
  if (error != 0 && syscall(SYS_tgkill, sys_getpid(), tid, signal) != 0) return false;  // refused, as by seccomp
  mask |= bit_of(signal);
  memcpy(&context->uc_sigmask, &mask, sizeof mask);
  return true;
}

}  // namespace pytracer::crashsafe
