#include "crashsafe/handler/handler.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/handler/dying.h"
#include "crashsafe/handler/steps.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/bounded_text.h"
#include "crashsafe/platform/process_status.h"
#include "crashsafe/platform/raw_log.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/signals/actions.h"
#include "crashsafe/signals/deliver.h"
#include "crashsafe/signals/stand_ins.h"
#include "crashsafe/threads/other_threads.h"
#include "crashsafe/unwind/native_stack.h"
#include "crashsafe/unwind/own_stack.h"
#include "crashsafe/unwind/stack_bounds.h"

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
constexpr int kMostMoments = 200;             // of 0.1 ms
constexpr unsigned long kRestorerFlag = 0x04000000;

KernelAction in_kernel[65];  // what the kernel has while we are installed
std::atomic<bool> installed{false};
const char* announce_directory = nullptr;
std::atomic<uint64_t> owner{0};  // lower half: thread that reports, 0: nobody; upper half counts the claims
std::atomic<int> repairs{0};     // faults that the program's handlers repaired

// The report in the box is of a signal that was given to the program's handler, which has not returned yet.
struct {
  std::atomic<int> tid{0};
  uint64_t base = 0;
  bool by_abort = false;  // see may_be_abort
  bool ends = false;      // it has returned, and the signal that ends the process is on its way
} noted;

// The frame of the fault that this thread's handler got last. Old when the handler was left: see is_inside.
constinit thread_local uint64_t t_delivered __attribute__((tls_model("initial-exec"))) = 0;

uint64_t mask_of(const ucontext_t* context) {
  uint64_t mask;
  memcpy(&mask, &context->uc_sigmask, sizeof mask);
  return mask;
}

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
  line.text("; to see why: pytracer inspect ").word(announce_directory).write_out();
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
  action.flags = in_kernel[signal].flags & kRestorerFlag;
  action.restorer = in_kernel[signal].restorer;
  sys_action(signal, &action, nullptr);
  drain(signal);
  if (syscall(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), signal, info) != 0)
    syscall(SYS_tgkill, sys_getpid(), sys_gettid(), signal);  // refused (e.g. seccomp): the status stays true, siginfo does not
}

int reporter() { return static_cast<int>(owner.load(std::memory_order_acquire) & 0xffffffff); }
void release() { owner.store(owner.load(std::memory_order_relaxed) & ~0xffffffffull, std::memory_order_release); }

void set_state(CrashState state) { std::atomic_ref(g_box.crash.data->state).store(static_cast<uint32_t>(state), std::memory_order_release); }
bool has_state(CrashState state) { return g_box.crash.data->state == static_cast<uint32_t>(state); }
void set_process_state(State state) { std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(state), std::memory_order_release); }

// The signal in the report was no death: its handler dealt with it. Only by who may write the report.
void note_repair() {
  noted.tid.store(0, std::memory_order_relaxed);
  repairs.fetch_add(1, std::memory_order_relaxed);
  std::atomic_ref(g_box.header->faults_repaired).fetch_add(1, std::memory_order_relaxed);
  std::atomic_ref(g_box.crash.data->also_crashed).store(0, std::memory_order_relaxed);
  set_state(CrashState::kRepaired);
  set_process_state(State::kRecording);
}

// A thread that crashes while the report is another one's leaves a small record.
void leave_line(int signal, const siginfo_t* info, const ucontext_t* context) {
  CrashHeader& crash = *g_box.crash.data;
  uint32_t i = std::atomic_ref(crash.also_crashed).fetch_add(1, std::memory_order_relaxed);
  if (i >= g_box.also_crashed.items) return;
  AlsoCrashed& entry = g_box.also_crashed.data[i];
  entry = {sys_gettid(), signal, info->si_code, 0, pc_of(context), info->si_code > 0 ? reinterpret_cast<uint64_t>(info->si_addr) : 0, now_ns()};
  std::atomic_ref(entry.published).store(1, std::memory_order_release);
}

// Of another thread: true when the mask of enter_handler is gone from it, so it has left the handler, or has ended.
bool has_left(int tid) {
  char path[64];
  BoundedText(path, sizeof path).add("/proc/self/task/").add(static_cast<uint32_t>(tid)).add("/status");
  // glibc blocks all signals, its own two with them, for a moment such as the start of a thread: the mask tells nothing then.
  const uint64_t glibcs_own = bit_of(32) | bit_of(33);
  for (int moments = 0;; moments++) {
    ProcessStatus status = read_status(path);
    if (status.error != 0) return status.error == ENOENT;  // it has ended
    if ((status.blocked & glibcs_own) != glibcs_own || moments == kMostMoments) return (status.blocked & kInHandler) == 0;
    timespec t{0, 100'000};
    syscall(SYS_nanosleep, &t, nullptr);
  }
}

// Of the calling thread: code with this stack pointer and mask was called by the handler whose frame is at `base`. A handler that
// was left by siglongjmp is known by the mask, one left by plain longjmp by the stack.
bool is_inside(uint64_t sp, uint64_t mask, uint64_t base, const stack_t& alternate) {
  return base != 0 && (mask & kInHandler) != 0 && runs_inside(sp, base, alternate);
}
bool is_inside(const ucontext_t* context, uint64_t base) { return is_inside(sp_of(context), mask_of(context), base, context->uc_stack); }

// The handler that the reported signal was given to still runs. `context`: where the calling thread is.
bool handler_runs(int tid, const ucontext_t* context) {
  if (!has_state(CrashState::kChained)) return false;
  int who = noted.tid.load(std::memory_order_acquire);
  if (who == tid) return noted.ends || is_inside(context, noted.base);
  return who != 0 && !has_left(who);
}

// Becomes the one thread that reports. False after waiting as long as a report may take.
bool claim(int tid, int signal, const siginfo_t* info, const ucontext_t* context) {
  uint64_t start = now_ns();
  long pause = 50'000;
  for (bool first = true;; first = false) {
    uint64_t seen = owner.load(std::memory_order_acquire);
    bool free = (seen & 0xffffffff) == 0;
    if (free && owner.compare_exchange_strong(seen, ((seen >> 32) + 1) << 32 | static_cast<uint32_t>(tid), std::memory_order_acq_rel)) return true;
    if (free) continue;
    if (first) leave_line(signal, info, context);
    if (now_ns() - start > kClaimNs) return false;
    timespec t{0, pause};
    syscall(SYS_nanosleep, &t, nullptr);
    if (pause < 10'000'000) pause *= 2;
  }
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
  choose_reads();
  // Risk begins here: faults in the steps that follow are recoverable because our signals are unblocked.
  uint64_t ours = our_signals();
  sys_mask(SIG_UNBLOCK, &ours, nullptr);
}

void report(int signal, siginfo_t* info, ucontext_t* context) {
  begin_report(signal, info, context, CrashState::kClaimed);
  run_steps(Step::kSignal, Step::kLoadedImages, context, in_kernel[signal]);
  run_steps(Step::kNames, Step::kHolders, context, in_kernel[signal]);
  set_state(CrashState::kComplete);
  set_process_state(State::kCrashed);
}

// Becomes the reporter when there is none; then nothing waits.
bool claim_at_once() {
  uint64_t seen = owner.load(std::memory_order_acquire);
  uint64_t mine = ((seen >> 32) + 1) << 32 | static_cast<uint32_t>(sys_gettid());
  return (seen & 0xffffffff) == 0 && owner.compare_exchange_strong(seen, mine, std::memory_order_acq_rel);
}

// Somebody asks for the stacks of this running process (pytracer attach). A crash at the same time comes first or waits.
void on_request(int signal, siginfo_t* info, ucontext_t* context) {
  int saved_errno = errno;
  borrow_alternate_stack(context);
  bool wanted = info->si_code == SI_QUEUE && static_cast<uint32_t>(info->si_value.sival_int) == kRequestValue;
  if (!wanted || sys_getpid() != g_box_pid) {  // the same number, for another purpose: as without us
    requeue_default(signal, info);
    errno = saved_errno;
    return;
  }
  if (claim_at_once()) {
    if (!room_for_report()) return release();
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

// ---- a signal that the program handles ----

// abort() raises the signal and goes on dying when the handler returns: only the exit tells that it was another raise().
bool may_be_abort(int signal, const siginfo_t* info) { return signal == SIGABRT && info->si_code == SI_TKILL && info->si_pid == g_box_pid; }

// Enters the program's handler; returns only when its frame cannot be written.
void give_to_program(int signal, siginfo_t* info, ucontext_t* context, bool reported, int error_number) {
  struct sigaction action = action_of(signal);
  Delivery delivery{};
  delivery.signal = signal;
  delivery.info = info;
  delivery.context = context;
  delivery.handler = reinterpret_cast<void*>(action.sa_sigaction);
  delivery.on_alternate_stack = (action.sa_flags & SA_ONSTACK) != 0;
  delivery.noted = reported;
  uint64_t set;
  memcpy(&set, &action.sa_mask, sizeof set);
  delivery.mask = mask_of(context) | to_kernel(set) | kInHandler;
  // Without preload a handler that sets the default action and raises has really set it: its raise() waits until it returns,
  // when the stacks of the other threads are taken.
  bool unwatched = reported && g_box.header->preloaded == 0;
  if ((action.sa_flags & static_cast<int>(SA_NODEFER)) == 0 || unwatched) delivery.mask |= to_kernel(bit_of(signal));
  DeliveredFrame frame{};
  if (!make_frame(delivery, frame)) return;
  if ((action.sa_flags & static_cast<int>(SA_RESETHAND)) != 0 && sys_getpid() == g_box_pid) reset_action(signal, action);
  if (!is_inside(context, t_delivered)) t_delivered = frame.base;
  if (reported) {
    noted.base = frame.base;
    noted.by_abort = may_be_abort(signal, info);
    noted.ends = false;
    noted.tid.store(sys_gettid(), std::memory_order_release);
    release();
  }
  enter_handler(delivery, frame, error_number);
}

// Everything of ours is complete before the program's handler runs: one such as AddressSanitizer's never returns. A program that
// repairs faults as a habit pays for one report.
void on_handled(int tid, int signal, siginfo_t* info, ucontext_t* context, int error_number) {
  wait_while_dying();
  bool reported = false;
  bool habit = repairs.load(std::memory_order_relaxed) > 0 && !may_be_abort(signal, info);
  if (!habit && room_for_report() && claim(tid, signal, info, context)) {
    if (handler_runs(tid, context)) {
      if (noted.tid.load(std::memory_order_relaxed) != tid) leave_line(signal, info, context);
      release();
    } else if (has_state(CrashState::kChained) && noted.tid.load(std::memory_order_relaxed) != 0 && !may_be_abort(signal, info)) {
      note_repair();  // that handler was left by a jump
      release();
      habit = true;
    } else {
      report(signal, info, context);
      set_state(CrashState::kChained);
      reported = true;
    }
  }
  if (habit) std::atomic_ref(g_box.header->faults_repaired).fetch_add(1, std::memory_order_relaxed);  // unless it dies of it: see report_death
  give_to_program(signal, info, context, reported, error_number);
  if (reported) release();
}

// ---- a signal that ends the process ----

// What is reported of a death inside the program's handler is the fault that the handler got.
void report_death(int signal, siginfo_t* info, ucontext_t* context) {
  DeliveredFrame frame{};
  if (!is_inside(context, t_delivered) || !frame_at(t_delivered, frame)) return report(signal, info, context);
  if (repairs.load(std::memory_order_relaxed) > 0) std::atomic_ref(g_box.header->faults_repaired).fetch_sub(1, std::memory_order_relaxed);
  report(frame.info->si_signo, frame.info, frame.context);
}

// On the own stack: the fault that the calling thread's handler is busy with.
void report_delivered(long, void*, void*) noexcept {
  DeliveredFrame frame{};
  if (!frame_at(t_delivered, frame)) return;
  borrow_alternate_stack(frame.context);
  report(frame.info->si_signo, frame.info, frame.context);
  set_state(CrashState::kChained);
}

// Certain death: only now may the other threads be disturbed, and they do not run on.
void take_other_threads(int signal, ucontext_t* context) {
  uint64_t ours = our_signals() & ~bit_of(signal);
  sys_mask(SIG_UNBLOCK, &ours, nullptr);
  run_steps(Step::kOtherThreads, Step::kOtherThreads, context, in_kernel[signal]);
  if (announce_directory != nullptr) announce(*g_box.crash.data);
}

void die(int tid, int signal, siginfo_t* info, ucontext_t* context) {
  begin_dying(tid);
  if (room_for_report() && claim(tid, signal, info, context)) {
    bool keep = handler_runs(tid, context);
    int who = noted.tid.load(std::memory_order_relaxed);
    if (!keep && has_state(CrashState::kChained) && who != 0) note_repair();
    if (!keep)
      report_death(signal, info, context);
    else if (who != tid)
      leave_line(signal, info, context);
    set_process_state(State::kCrashed);
    take_other_threads(signal, context);
  }
  requeue_default(signal, info);
  uint64_t mask = mask_of(context) & ~bit_of(signal);
  memcpy(&context->uc_sigmask, &mask, sizeof mask);
  // Init is not ended by a signal that was queued, only by the fault itself, which comes again; a breakpoint is behind us.
  if (g_box_pid == 1 && signal == SIGTRAP && info->si_code > 0) set_pc(context, breakpoint_before(pc_of(context)));
}

void handle(int signal, siginfo_t* info, ucontext_t* context) {
  int saved_errno = errno;
  borrow_alternate_stack(context);
  bool fault = info->si_code > 0;
  if (signal == SIGBUS && fault && replace_lost_page(reinterpret_cast<uint64_t>(info->si_addr))) {
    errno = saved_errno;
    return;
  }
  if (fault && recover_read(context)) return;
  int tid = sys_gettid();
  if (fault && recover_walk(tid, context)) return;
  if (reporter() == tid) {  // a fault in a step, or in our own last lines
    if (!recover_step(context)) requeue_default(signal, info);
    errno = saved_errno;
    return;
  }
  Installed action = installed_of(action_of(signal));
  if (sys_getpid() != g_box_pid) {  // a vfork child: the memory is the parent's, the death is its own
    if (action == Installed::kFunction) give_to_program(signal, info, context, false, saved_errno);
    requeue_default(signal, info);
    errno = saved_errno;
    return;
  }
  uint64_t mask = mask_of(context);
  // Blocked there in truth, and here all the same: sigsuspend or ppoll let it through, as the program wants.
  bool blocked = (believed_blocked(mask) & ~mask & bit_of(signal)) != 0;
  Fate fate = decide({action, fault, blocked, g_box_pid == 1});
  if (fate == Fate::kHoldBack && !hold_back(signal, info, context)) fate = Fate::kDefault;
  if (fate == Fate::kHandler) {
    on_handled(tid, signal, info, context, saved_errno);
    fate = Fate::kDefault;  // no room for its frame
  }
  if (fate == Fate::kDefault) die(tid, signal, info, context);
  errno = saved_errno;
}

}  // namespace

// The handler of the signal that was reported returns: the process goes on, or it dies now.
void on_handler_returned(ucontext_t* context) noexcept {
  if (noted.tid.load(std::memory_order_acquire) != sys_gettid() || !claim_at_once()) return;
  CrashHeader& crash = *g_box.crash.data;
  int signal = crash.signal;
  bool preloaded = g_box.header->preloaded != 0;
  KernelAction now{}, none{};
  sys_action(signal, nullptr, &now);
  bool is_default = preloaded ? installed_of(action_of(signal)) == Installed::kDefault : now.handler == nullptr;
  uint64_t pending = 0;
  syscall(SYS_rt_sigpending, &pending, sizeof pending);
  bool raised = (pending & bit_of(signal)) != 0;
  // Without preload the handler that it put back before it raised may be ours again: another round would never end.
  bool ends = preloaded ? is_default && (crash.code > 0 || raised) : raised || (is_default && crash.code > 0);
  if (noted.by_abort) {
    noted.tid.store(0, std::memory_order_relaxed);
    set_process_state(State::kRecording);
  } else if (!ends) {
    note_repair();
  } else if (preloaded) {
    noted.ends = true;  // we meet it once more
  } else {
    begin_dying(sys_gettid());
    take_other_threads(signal, context);
    none.flags = in_kernel[signal].flags & kRestorerFlag;
    none.restorer = in_kernel[signal].restorer;
    sys_action(signal, &none, nullptr);
  }
  release();
}

struct sigaction handler_for(int signal, const struct sigaction& program) noexcept {
  struct sigaction action = program;
  if (installed_of(program) == Installed::kIgnored) return action;
  action.sa_sigaction = signal == kRequestSignal ? pytracer_enter_request : pytracer_enter_fault;
  // Whether an interrupted system call goes on is decided before our handler runs.
  bool restart = installed_of(program) == Installed::kDefault || (program.sa_flags & SA_RESTART) != 0;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (restart ? SA_RESTART : 0);
  // Nothing of the program's runs on our stack. Left unblocked: faults, our own requests and deadlines, setuid() and cancellation.
  uint64_t mask = ~(our_signals() | 3ull << 31 | 0x1fffull << 49);
  action.sa_mask = {};
  memcpy(&action.sa_mask, &mask, sizeof mask);
  return action;
}

void install_handlers(int (*libc_sigaction)(int, const struct sigaction*, struct sigaction*), const char* announce) noexcept {
  if (installed.exchange(true)) return;
  announce_directory = announce;
  warm_up_unwinder();
  for (int signal : kSignals) {
    struct sigaction old{};
    if (libc_sigaction(signal, nullptr, &old) != 0) continue;
    exchange_action(signal, old, nullptr);  // before ours is live
    struct sigaction as_default{};
    struct sigaction action = handler_for(signal, as_default);
    if (libc_sigaction(signal, &action, nullptr) != 0) continue;
    sys_action(signal, nullptr, &in_kernel[signal]);
    set_end_of_handlers((in_kernel[signal].flags & kRestorerFlag) != 0 ? in_kernel[signal].restorer : nullptr);
    action = handler_for(signal, old);
    libc_sigaction(signal, &action, nullptr);
  }
  struct sigaction none{};
  struct sigaction request = handler_for(kRequestSignal, none);
  KernelAction now{};
  if (sys_action(kRequestSignal, nullptr, &now) == 0 && now.handler == nullptr && libc_sigaction(kRequestSignal, &request, nullptr) == 0)
    sys_action(kRequestSignal, nullptr, &in_kernel[kRequestSignal]);
}

void uninstall_handlers() noexcept {
  if (!installed.exchange(false)) return;
  KernelAction request{}, none{};
  if (sys_action(kRequestSignal, nullptr, &request) == 0 && request.handler == reinterpret_cast<void*>(pytracer_enter_request))
    sys_action(kRequestSignal, &none, nullptr);
  for (int signal : kSignals) {
    KernelAction now{};
    if (sys_action(signal, nullptr, &now) != 0 || now.handler != reinterpret_cast<void*>(pytracer_enter_fault)) continue;
    struct sigaction old = action_of(signal);
    KernelAction back{reinterpret_cast<void*>(old.sa_handler), static_cast<unsigned long>(old.sa_flags) | (in_kernel[signal].flags & kRestorerFlag),
                      in_kernel[signal].restorer, 0};
    memcpy(&back.mask, &old.sa_mask, sizeof back.mask);
    sys_action(signal, &back, nullptr);
  }
}

void note_normal_exit() noexcept {
  bool reported = has_state(CrashState::kChained);
  if (!reported && t_delivered == 0) return;
  uint64_t mask = 0, here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  stack_t alternate{};
  sys_mask(SIG_BLOCK, nullptr, &mask);
  syscall(SYS_sigaltstack, nullptr, &alternate);
  // Its handler ends the process. A program that repaired faults before has no report of this one yet.
  if (is_inside(here, mask, t_delivered, alternate)) {
    if (reported || !room_for_report() || !claim_at_once()) return;
    pytracer_on_own_stack(0, nullptr, nullptr, report_delivered);
    syscall(SYS_sigaltstack, &alternate, nullptr);
    release();
    return;
  }
  int who = noted.tid.load(std::memory_order_acquire);
  if (!reported || (who != 0 && who != sys_gettid() && !has_left(who))) return;
  set_state(CrashState::kRepaired);
  set_process_state(State::kRecording);
}

bool is_request_handler(const struct sigaction& action) noexcept { return action.sa_sigaction == pytracer_enter_request; }
bool may_be_in_handler() noexcept { return t_delivered != 0; }

void forget_reports() noexcept {
  // In most children there are none: a page that is not written is not copied.
  if (owner.load(std::memory_order_relaxed) != 0) owner.store(0, std::memory_order_relaxed);
  if (noted.tid.load(std::memory_order_relaxed) != 0) noted.tid.store(0, std::memory_order_relaxed);
  forget_dying();
}

void write_exit(ucontext_t* context) noexcept {
  auto before = static_cast<CrashState>(g_box.crash.data->state);
  if (!handlers_installed() || (before != CrashState::kNone && before != CrashState::kLive) || !room_for_report() || !claim_at_once()) return;
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

extern "C" {
__attribute__((visibility("hidden"))) void pytracer_on_fault(long signal, void* info, void* context) noexcept {
  pytracer::crashsafe::handle(static_cast<int>(signal), static_cast<siginfo_t*>(info), static_cast<ucontext_t*>(context));
}
__attribute__((visibility("hidden"))) void pytracer_on_request(long signal, void* info, void* context) noexcept {
  pytracer::crashsafe::on_request(static_cast<int>(signal), static_cast<siginfo_t*>(info), static_cast<ucontext_t*>(context));
}
}
