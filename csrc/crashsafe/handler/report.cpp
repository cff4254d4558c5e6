#include "crashsafe/handler/report.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/handler/steps.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/signals/install.h"
#include "crashsafe/text/raw_log.h"
#include "crashsafe/unwind/stack_bounds.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <atomic>
#include <cstddef>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t kClaimNs = 5'000'000'000;  // how long a crashed thread waits for the report of another one

std::atomic<uint64_t> owner{0};  // lower half: the reporter, 0: none; upper half: the number of the claim

uint64_t claimed(uint64_t seen, int tid) { return ((seen >> 32) + 1) << 32 | static_cast<uint32_t>(tid); }
bool is_free(uint64_t seen) { return (seen & 0xffffffff) == 0; }

void write_signal(int signal, const siginfo_t* info, const ucontext_t* context) {
  CrashHeader& crash = *g_box.crash.data;
  crash.signal = signal;
  crash.code = info->si_code;
  bool fault = info->si_code > 0;
  crash.fault_addr = fault ? reinterpret_cast<uint64_t>(info->si_addr) : 0;
  crash.sender_pid = fault ? 0 : info->si_pid;
  crash.sender_uid = fault ? 0 : info->si_uid;
  memcpy(crash.siginfo, info, sizeof crash.siginfo);
  copy_registers(context, crash.registers);
  crash.pc = pc_of(context);
  crash.sp = sp_of(context);
  crash.error_code = error_of(context);
  crash.trap = trap_of(context);
  crash.pthread = static_cast<uint64_t>(pthread_self());
  prctl(PR_GET_NAME, crash.thread_name);
  stack_t stack{};
  syscall(SYS_sigaltstack, nullptr, &stack);
  crash.on_alternate_stack = (stack.ss_flags & SS_ONSTACK) != 0;
  StackBounds bounds = stack_bounds();
  crash.stack_low = bounds.low;
  crash.stack_high = bounds.high;
}

}  // namespace

int reporter() noexcept { return static_cast<int>(owner.load(std::memory_order_acquire) & 0xffffffff); }

bool claim_at_once() noexcept {
  uint64_t seen = owner.load(std::memory_order_acquire);
  uint64_t mine = claimed(seen, sys_gettid());
  return is_free(seen) && owner.compare_exchange_strong(seen, mine, std::memory_order_acq_rel);
}

bool claim(int tid, int signal, const siginfo_t* info, const ucontext_t* context) noexcept {
  uint64_t start = now_ns();
  long pause = 50'000;
  for (bool first = true;; first = false) {
    uint64_t seen = owner.load(std::memory_order_acquire);
    bool free = is_free(seen);
    if (free && owner.compare_exchange_strong(seen, claimed(seen, tid), std::memory_order_acq_rel)) return true;
    if (free) continue;
    if (first) leave_line(signal, info, context);
    if (now_ns() - start > kClaimNs) return false;
    timespec t{0, pause};
    syscall(SYS_nanosleep, &t, nullptr);
    if (pause < 10'000'000) pause *= 2;
  }
}

void release_claim() noexcept { owner.store(owner.load(std::memory_order_relaxed) & ~0xffffffffull, std::memory_order_release); }

// In most children there is none: a page that is not written is not copied.
void forget_claim() noexcept {
  if (owner.load(std::memory_order_relaxed) != 0) owner.store(0, std::memory_order_relaxed);
}

void set_state(CrashState state) noexcept { std::atomic_ref(g_box.crash.data->state).store(static_cast<uint32_t>(state), std::memory_order_release); }
bool has_state(CrashState state) noexcept { return g_box.crash.data->state == static_cast<uint32_t>(state); }
void set_process_state(State state) noexcept { std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(state), std::memory_order_release); }

void leave_line(int signal, const siginfo_t* info, const ucontext_t* context) noexcept {
  CrashHeader& crash = *g_box.crash.data;
  uint32_t i = std::atomic_ref(crash.also_crashed).fetch_add(1, std::memory_order_relaxed);
  if (i >= g_box.also_crashed.items) return;
  AlsoCrashed& entry = g_box.also_crashed.data[i];
  entry = {sys_gettid(), signal, info->si_code, 0, pc_of(context), info->si_code > 0 ? reinterpret_cast<uint64_t>(info->si_addr) : 0, now_ns()};
  std::atomic_ref(entry.published).store(1, std::memory_order_release);
}

void begin_report(int signal, const siginfo_t* info, const ucontext_t* context, CrashState state) noexcept {
  CrashHeader& crash = *g_box.crash.data;
  // Not the number of lines: threads that crash at the same moment are adding to it.
  constexpr size_t kBefore = offsetof(CrashHeader, also_crashed), kAfter = kBefore + sizeof crash.also_crashed;
  memset(static_cast<void*>(&crash), 0, kBefore);
  memset(reinterpret_cast<char*>(&crash) + kAfter, 0, sizeof crash - kAfter);
  crash.mono_ns = now_ns();
  crash.device_sequence = std::atomic_ref(g_box.header->device_sequence).load(std::memory_order_acquire);
  crash.tid = sys_gettid();
  crash.node_sequence_nr = -1;
  crash.state = static_cast<uint32_t>(state);
  write_signal(signal, info, context);
  choose_reads();
  // Risk begins here: faults in the steps that follow are recoverable because our signals are unblocked.
  uint64_t ours = our_signals();
  sys_mask(SIG_UNBLOCK, &ours, nullptr);
}

void report(int signal, siginfo_t* info, ucontext_t* context) noexcept {
  begin_report(signal, info, context, CrashState::kClaimed);
  run_steps(Step::kSignal, Step::kLoadedImages, context, installed_action(signal));
  run_steps(Step::kNames, Step::kArguments, context, installed_action(signal));
  set_state(CrashState::kComplete);
  set_process_state(State::kCrashed);
}

void announce_crash() noexcept {
  const CrashHeader& crash = *g_box.crash.data;
  if (announced_directory() == nullptr) return;
  const char* name = crash.signal == SIGSEGV   ? "SIGSEGV"
                     : crash.signal == SIGBUS  ? "SIGBUS"
                     : crash.signal == SIGABRT ? "SIGABRT"
                     : crash.signal == SIGILL  ? "SIGILL"
                     : crash.signal == SIGFPE  ? "SIGFPE"
                     : crash.signal == SIGTRAP ? "SIGTRAP"
                                               : "SIGSYS";
  RawLine line;
  line.text("pytracer: process ").number(static_cast<uint64_t>(g_box_pid)).text(" died of ").text(name);
  if (crash.code > 0 && crash.fault_addr != 0) line.text(" at ").number(crash.fault_addr, 16);
  line.text("; to see why: pytracer inspect ").word(announced_directory()).write_out();
}

}  // namespace pytracer::crashsafe
