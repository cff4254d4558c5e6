#include "handler.h"

#include "arch.h"
#include "box.h"
#include "native_stack.h"
#include "other_threads.h"
#include "raw_log.h"
#include "safe_read.h"
#include "steps.h"
#include "thread_state.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace pytracer {
Box g_box;
int g_box_pid = 0;
}  // namespace pytracer

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

constexpr uint64_t kClaimNs = 5'000'000'000;  // how long a crashed thread waits for the report of another one
constexpr int kInTheirs = 64;                 // a signal blocked on a thread while it runs the previous handler: how others see that it does

// What the program believes is installed. Two slots and an index, so that a reader in the handler never sees half.
struct Theirs {
  struct sigaction slot[2] = {};
  std::atomic<uint32_t> current{0};
};
constinit Theirs theirs[65];  // constinit: the preloaded constructor runs before other initializers would
KernelAction in_kernel[65];   // what the kernel has while we are installed
std::atomic<bool> installed{false};
const char* announce_directory = nullptr;
std::atomic<uint64_t> owner{0};  // lower half: thread that reports, 0: nobody; upper half counts the claims
std::atomic<int> repairs{0};     // faults that another handler repaired

// While the previous handler runs inside ours: its raise() is swallowed, a fault outside our stack is a new fault.
struct {
  volatile bool on, swallowed;
  uint64_t low, high;
} shield;

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

void announce(const CrashHeader& crash) {
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
  line.text("; to see why: pytracer inspect ").text(announce_directory).write_out();
}

void drain(int signal) {
  uint64_t one = bit_of(signal);
  timespec zero{};
  siginfo_t dropped;
  sys_mask(SIG_BLOCK, &one, nullptr);
  while (syscall(SYS_rt_sigtimedwait, &one, &dropped, &zero, sizeof one) == signal) {
  }
}

// The original signal again, under the default action: delivered when our handler returns, so that the registers and
// siginfo in a core dump are those of the fault. A pending copy would win over ours: drain it first.
void requeue_default(int signal, siginfo_t* info) {
  KernelAction action{};
  action.flags = in_kernel[signal].flags & 0x04000000;  // SA_RESTORER
  action.restorer = in_kernel[signal].restorer;
  sys_action(signal, &action, nullptr);
  drain(signal);
  if (syscall(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), signal, info) != 0)
    syscall(SYS_tgkill, sys_getpid(), sys_gettid(), signal);  // refused (e.g. seccomp): the status stays true, siginfo does not
}

struct sigaction action_of(int signal) { return theirs[signal].slot[theirs[signal].current.load(std::memory_order_acquire)]; }
bool is_function(const struct sigaction& action) { return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN; }

// Calls the previous handler as a function inside ours, as the kernel would have: mask, arguments, one-shot flag.
// True when it returned so that the program goes on: it repaired the fault, or took note of a signal that was sent.
bool call_theirs(int signal, siginfo_t* info, ucontext_t* context) {
  struct sigaction action = action_of(signal);
  if (action.sa_flags & static_cast<int>(SA_RESETHAND)) {
    struct sigaction reset = action;
    reset.sa_handler = SIG_DFL;
    exchange_action(signal, &reset, nullptr);
  }
  uint64_t mask;
  memcpy(&mask, &action.sa_mask, sizeof mask);
  // Without preload a handler that sets the default action and raises has really set it: its raise() must wait for us.
  bool unwatched = g_box.header->preloaded == 0;
  if (!(action.sa_flags & static_cast<int>(SA_NODEFER)) || unwatched) mask |= bit_of(signal);
  mask |= bit_of(kInTheirs);
  stack_t stack{};
  syscall(SYS_sigaltstack, nullptr, &stack);
  shield.swallowed = false;
  shield.low = stack.ss_flags & SS_ONSTACK ? reinterpret_cast<uint64_t>(stack.ss_sp) : 0;
  shield.high = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  sys_mask(SIG_BLOCK, &mask, nullptr);
  shield.on = true;  // after the mask: see has_left
  if (action.sa_flags & SA_SIGINFO)
    action.sa_sigaction(signal, info, context);
  else
    action.sa_handler(signal);
  uint64_t one = bit_of(signal);
  timespec zero{};
  siginfo_t dropped;
  sys_mask(SIG_BLOCK, &one, nullptr);
  if (syscall(SYS_rt_sigtimedwait, &one, &dropped, &zero, sizeof one) == signal) shield.swallowed = true;
  shield.on = false;
  return !shield.swallowed && is_function(action_of(signal));
}

int reporter() { return static_cast<int>(owner.load(std::memory_order_acquire) & 0xffffffff); }

// The report is nobody's any more: its signal was dealt with.
void release() {
  std::atomic_ref(g_box.crash.data->also_crashed).store(0, std::memory_order_relaxed);
  owner.store(owner.load(std::memory_order_relaxed) & ~0xffffffffull, std::memory_order_release);
}

void note_repair() {
  repairs.fetch_add(1, std::memory_order_relaxed);
  std::atomic_ref(g_box.header->faults_repaired).fetch_add(1, std::memory_order_relaxed);
}

// A thread that crashes while another one is being reported leaves a small record.
void leave_line(int signal, const siginfo_t* info, const ucontext_t* context) {
  CrashHeader& crash = *g_box.crash.data;
  uint32_t i = std::atomic_ref(crash.also_crashed).fetch_add(1, std::memory_order_relaxed);
  if (i >= g_box.also_crashed.items) return;
  AlsoCrashed& entry = g_box.also_crashed.data[i];
  entry = {sys_gettid(), signal, info->si_code, 0, pc_of(context), info->si_code > 0 ? reinterpret_cast<uint64_t>(info->si_addr) : 0, now_ns()};
  std::atomic_ref(entry.published).store(1, std::memory_order_release);
}

// True when the thread that reports has left its previous handler by siglongjmp: the mask of call_theirs is gone from it.
bool has_left(int tid) {
  if (!shield.on) return false;
  char path[64] = "/proc/self/task/", text[2048];
  char digits[16];
  size_t at = sizeof digits, end = strlen(path);
  for (auto rest = static_cast<uint32_t>(tid); rest != 0; rest /= 10) digits[--at] = static_cast<char>('0' + rest % 10);
  memcpy(path + end, digits + at, sizeof digits - at);
  memcpy(path + end + sizeof digits - at, "/status", 8);
  auto fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  if (fd < 0) return errno == ENOENT;  // it has ended
  long n = syscall(SYS_read, fd, text, sizeof text);
  syscall(SYS_close, fd);
  // The mask is 16 hexadecimal digits; kInTheirs is the highest bit.
  for (long i = 0; i + 10 < n; i++)
    if (memcmp(text + i, "SigBlk:\t", 8) == 0) return text[i + 8] < '8';
  return false;
}

// Becomes the one thread that reports. False after waiting as long as a report may take.
bool claim(int tid, int signal, const siginfo_t* info, const ucontext_t* context) {
  uint64_t start = now_ns();
  long pause = 50'000;
  for (bool first = true;; first = false) {
    uint64_t seen = owner.load(std::memory_order_acquire);
    auto holder = static_cast<int>(seen & 0xffffffff);
    bool left = holder != 0 && has_left(holder);
    if ((holder == 0 || left) &&
        owner.compare_exchange_strong(seen, ((seen >> 32) + 1) << 32 | static_cast<uint32_t>(tid), std::memory_order_acq_rel)) {
      if (left) {
        shield.on = false;
        note_repair();
        std::atomic_ref(g_box.crash.data->also_crashed).store(0, std::memory_order_relaxed);
      }
      return true;
    }
    if (holder == 0 || left) continue;
    if (first) leave_line(signal, info, context);
    if (now_ns() - start > kClaimNs) return false;
    timespec t{0, pause};  // repairs are short, reports are not
    syscall(SYS_nanosleep, &t, nullptr);
    if (pause < 10'000'000) pause *= 2;
  }
}

// A fault while this thread already reports: in a checked read, in a step, in their handler, or in our own last lines.
// Returns true when the signal has been dealt with.
bool nested(int signal, siginfo_t* info, ucontext_t* context) {
  if (shield.on) {
    if (info->si_code <= 0) {  // their handler's own raise()
      shield.swallowed = true;
      return true;
    }
    bool inside = sp_of(context) >= shield.low && sp_of(context) < shield.high;
    if (!inside) {  // they left by siglongjmp, which is a repair; this is a new fault
      shield.on = false;
      note_repair();
      g_box.crash.data->state = static_cast<uint32_t>(CrashState::kRepaired);
      g_box.header->state = static_cast<uint32_t>(State::kRecording);
      release();
      return false;
    }
  } else if (recover_step(context)) {
    return true;
  }
  requeue_default(signal, info);
  return true;
}

void begin_report(int signal, const siginfo_t* info, const ucontext_t* context, CrashState state) {
  CrashHeader& crash = *g_box.crash.data;
  // Not the number of lines: threads that crash at the same moment are leaving theirs.
  constexpr size_t kBefore = offsetof(CrashHeader, also_crashed), kAfter = kBefore + sizeof crash.also_crashed;
  memset(static_cast<void*>(&crash), 0, kBefore);
  memset(reinterpret_cast<char*>(&crash) + kAfter, 0, sizeof crash - kAfter);
  crash.mono_ns = now_ns();
  crash.device_sequence = std::atomic_ref(g_box.header->device_sequence).load(std::memory_order_acquire);
  crash.tid = sys_gettid();
  crash.node_sequence_nr = -1;
  crash.state = static_cast<uint32_t>(state);
  write_signal(signal, info, context);
  // Risk begins here: faults in the steps that follow are recoverable because our signals are unblocked.
  uint64_t ours = our_signals();
  sys_mask(SIG_UNBLOCK, &ours, nullptr);
}

void report(int signal, siginfo_t* info, ucontext_t* context) {
  begin_report(signal, info, context, CrashState::kClaimed);
  run_steps(Step::kSignal, Step::kLoadedImages, context, in_kernel[signal]);
  run_steps(Step::kNames, Step::kHolders, context, in_kernel[signal]);
  std::atomic_ref(g_box.crash.data->state).store(static_cast<uint32_t>(CrashState::kComplete), std::memory_order_release);
}

// Becomes the reporter when there is none; then nothing waits.
bool claim_at_once() {
  uint64_t seen = owner.load(std::memory_order_acquire);
  uint64_t mine = ((seen >> 32) + 1) << 32 | static_cast<uint32_t>(sys_gettid());
  return (seen & 0xffffffff) == 0 && owner.compare_exchange_strong(seen, mine, std::memory_order_acq_rel);
}

// Somebody asks for the stacks of this running process (pytracer attach). A crash at the same time comes first or waits.
void on_request(int signal, siginfo_t* info, void* raw_context) {
  int saved_errno = errno;
  auto* context = static_cast<ucontext_t*>(raw_context);
  bool wanted = info->si_code == SI_QUEUE && static_cast<uint32_t>(info->si_value.sival_int) == kRequestValue;
  if (!wanted || sys_getpid() != g_box_pid) {  // the same number, for another purpose: as without us
    requeue_default(signal, info);
    errno = saved_errno;
    return;
  }
  if (claim_at_once()) {
    uint64_t old_mask = 0;
    sys_mask(SIG_BLOCK, nullptr, &old_mask);
    begin_report(signal, info, context, CrashState::kLive);
    run_steps(Step::kSignal, Step::kOtherThreads, context, in_kernel[signal]);
    run_steps(Step::kNames, Step::kHolders, context, in_kernel[signal]);
    std::atomic_ref(g_box.header->live_reports).fetch_add(1, std::memory_order_release);
    release();
    sys_mask(SIG_SETMASK, &old_mask, nullptr);
  }
  errno = saved_errno;
}

void handle(int signal, siginfo_t* info, void* raw_context) {
  int saved_errno = errno;
  auto* context = static_cast<ucontext_t*>(raw_context);
  if (info->si_code > 0 && recover_read(context)) return;
  int tid = sys_gettid();
  if (info->si_code > 0 && recover_walk(tid, context)) return;
  if (reporter() == tid && nested(signal, info, context)) {
    errno = saved_errno;
    return;
  }
  if (sys_getpid() != g_box_pid) {  // a vfork child: the memory is the parent's, the death is its own
    requeue_default(signal, info);
    return;
  }
  if (info->si_code <= 0 && hold_back(signal, info, context)) {
    errno = saved_errno;
    return;
  }
  struct sigaction previous = action_of(signal);
  if (previous.sa_handler == SIG_IGN && info->si_code <= 0) return;  // as the kernel would
  if (!claim(tid, signal, info, context)) {
    requeue_default(signal, info);
    errno = saved_errno;
    return;
  }
  uint64_t old_mask = 0;
  sys_mask(SIG_BLOCK, nullptr, &old_mask);
  bool repaired = false, called = false;
  // abort() raises the signal and goes on dying when the handler returns: only the exit tells that it was another raise().
  bool may_be_abort = signal == SIGABRT && info->si_code == SI_TKILL && info->si_pid == g_box_pid;
  if (is_function(previous) && repairs.load(std::memory_order_relaxed) > 0 &&
      !may_be_abort) {  // a program that repairs faults as a habit pays no report
    called = true;
    repaired = call_theirs(signal, info, context);
  }
  if (!repaired) {
    report(signal, info, context);
    std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(State::kCrashed), std::memory_order_release);
    if (!called && is_function(previous)) {  // everything of ours is complete: a handler such as ASan's never returns
      g_box.crash.data->state = static_cast<uint32_t>(CrashState::kChained);
      repaired = call_theirs(signal, info, context);
    }
    if (repaired) {
      if (!may_be_abort) g_box.crash.data->state = static_cast<uint32_t>(CrashState::kRepaired);
      g_box.header->state = static_cast<uint32_t>(State::kRecording);
    }
  }
  if (repaired) {
    if (!may_be_abort) note_repair();
    release();
    sys_mask(SIG_SETMASK, &old_mask, nullptr);
  } else {
    // Certain death: only now may the other threads be disturbed. Their handler may have left our signals blocked.
    uint64_t ours = our_signals();
    sys_mask(SIG_UNBLOCK, &ours, nullptr);
    run_steps(Step::kOtherThreads, Step::kOtherThreads, context, in_kernel[signal]);
    if (announce_directory != nullptr) announce(*g_box.crash.data);
    requeue_default(signal, info);
  }
  errno = saved_errno;
}

}  // namespace

void exchange_action(int signal, const struct sigaction* act, struct sigaction* old) noexcept {
  Theirs& entry = theirs[signal];
  uint32_t current = entry.current.load(std::memory_order_acquire);
  struct sigaction before = entry.slot[current];
  if (act != nullptr) {
    entry.slot[current ^ 1] = *act;
    entry.current.store(current ^ 1, std::memory_order_release);
  }
  if (old != nullptr) *old = before;
}

void install_handlers(int (*libc_sigaction)(int, const struct sigaction*, struct sigaction*), const char* announce) noexcept {
  if (installed.exchange(true)) return;
  announce_directory = announce;
  warm_up_unwinder();
  for (int signal : kSignals) {
    struct sigaction action{};
    struct sigaction old{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    if (libc_sigaction(signal, nullptr, &old) != 0) continue;
    exchange_action(signal, &old, nullptr);  // before ours is live
    if (libc_sigaction(signal, &action, nullptr) == 0) sys_action(signal, nullptr, &in_kernel[signal]);
  }
  struct sigaction request{};
  request.sa_sigaction = on_request;
  request.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  KernelAction now{};
  if (sys_action(kRequestSignal, nullptr, &now) == 0 && now.handler == nullptr && libc_sigaction(kRequestSignal, &request, nullptr) == 0)
    sys_action(kRequestSignal, nullptr, &in_kernel[kRequestSignal]);
}

void uninstall_handlers() noexcept {
  if (!installed.exchange(false)) return;
  KernelAction request{}, none{};
  if (sys_action(kRequestSignal, nullptr, &request) == 0 && request.handler == reinterpret_cast<void*>(on_request))
    sys_action(kRequestSignal, &none, nullptr);
  for (int signal : kSignals) {
    KernelAction now{};
    if (sys_action(signal, nullptr, &now) != 0 || now.handler != reinterpret_cast<void*>(handle)) continue;
    struct sigaction old = action_of(signal);
    KernelAction back{reinterpret_cast<void*>(old.sa_handler), static_cast<unsigned long>(old.sa_flags) | (in_kernel[signal].flags & 0x04000000),
                      in_kernel[signal].restorer, 0};
    memcpy(&back.mask, &old.sa_mask, sizeof back.mask);
    sys_action(signal, &back, nullptr);
  }
}

void note_normal_exit() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  if (shield.on) {
    auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
    if (reporter() != sys_gettid() || (here >= shield.low && here < shield.high)) return;  // their handler ends the process
    shield.on = false;
    note_repair();
  }
  if (crash.state != static_cast<uint32_t>(CrashState::kChained)) return;
  crash.state = static_cast<uint32_t>(CrashState::kRepaired);
  g_box.header->state = static_cast<uint32_t>(State::kRecording);
}

void write_exit(ucontext_t* context) noexcept {
  auto before = static_cast<CrashState>(g_box.crash.data->state);
  if (!handlers_installed() || (before != CrashState::kNone && before != CrashState::kLive) || !claim_at_once()) return;
  uint64_t old_mask = 0;
  sys_mask(SIG_BLOCK, nullptr, &old_mask);
  set_pc(context, reinterpret_cast<uint64_t>(__builtin_return_address(0)));  // the walk begins at our caller
  siginfo_t none{};
  begin_report(0, &none, context, CrashState::kExit);
  run_steps(Step::kSignal, Step::kImages, context, in_kernel[SIGSEGV]);
  release();
  sys_mask(SIG_SETMASK, &old_mask, nullptr);
}

bool handlers_installed() noexcept { return installed.load(std::memory_order_acquire); }

}  // namespace pytracer::crashsafe
