#include "crashsafe/handler/handled_signal.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/handler/death.h"
#include "crashsafe/handler/dying.h"
#include "crashsafe/handler/report.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/process_status.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/signals/actions.h"
#include "crashsafe/signals/deliver.h"
#include "crashsafe/signals/install.h"
#include "crashsafe/signals/stand_ins.h"
#include "crashsafe/text/bounded_text.h"
#include "crashsafe/unwind/own_stack.h"

#include <atomic>
#include <cerrno>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr int kMostMoments = 200;                // of 0.1 ms
constexpr uint64_t kDeepestHandler = 256 << 10;  // further down lies another stack, to which a coroutine's switch led

std::atomic<int> repairs{0};  // faults that the program's handlers repaired

// The report in the black box is of a signal that was delivered to the program's handler, which has not returned yet.
struct {
  std::atomic<int> tid{0};
  uint64_t base = 0;
  bool by_abort = false;  // see may_be_abort
  bool ends = false;      // it has returned, and the signal that ends the process is on its way
} noted;

// The frame of the fault that this thread's handler got last. Out of date when the handler was left: see is_inside.
constinit thread_local uint64_t t_delivered __attribute__((tls_model("initial-exec"))) = 0;

uint64_t mask_of(const ucontext_t* context) {
  uint64_t mask;
  memcpy(&mask, &context->uc_sigmask, sizeof mask);
  return mask;
}

// abort() raises the signal and continues to end the process when the handler returns: only the exit shows that it was another raise().
bool may_be_abort(int signal, const siginfo_t* info) { return signal == SIGABRT && info->si_code == SI_TKILL && info->si_pid == g_box_pid; }

// Another thread: true when the mask of enter_handler is gone from it, so it has left the handler, or has ended.
bool has_left(int tid) {
  char path[64];
  BoundedText(path, sizeof path).add("/proc/self/task/").add(static_cast<uint32_t>(tid)).add("/status");
  // glibc blocks all signals, including its own two, for moments such as the start of a thread: the mask means nothing then.
  const uint64_t glibcs_own = bit_of(32) | bit_of(33);
  for (int moments = 0;; moments++) {
    ProcessStatus status = read_status(path);
    if (status.error != 0) return status.error == ENOENT;  // it has ended
    if ((status.blocked & glibcs_own) != glibcs_own || moments == kMostMoments) return (status.blocked & kInHandler) == 0;
    timespec t{0, 100'000};
    syscall(SYS_nanosleep, &t, nullptr);
  }
}

// The calling thread: whether code with this stack pointer and mask was called by the handler whose frame is at `base`. A handler that
// was left by siglongjmp is known by the mask, one left by plain longjmp by the stack.
bool is_inside(uint64_t sp, uint64_t mask, uint64_t base, const stack_t& alternate) {
  return base != 0 && (mask & kInHandler) != 0 && runs_inside(sp, base, alternate);
}
bool is_inside(const ucontext_t* context, uint64_t base) { return is_inside(sp_of(context), mask_of(context), base, context->uc_stack); }

// The calling thread, at this stack pointer.
bool is_inside(uint64_t sp, const stack_t& alternate) {
  uint64_t mask = 0;
  sys_mask(SIG_BLOCK, nullptr, &mask);
  return is_inside(sp, mask, t_delivered, alternate);
}

void count_repair() { std::atomic_ref(g_box.header->faults_repaired).fetch_add(1, std::memory_order_relaxed); }

// On our own stack: the fault that the calling thread's handler is processing.
void report_delivered(long, void*, void*) noexcept {
  DeliveredFrame frame{};
  if (!frame_at(t_delivered, frame)) return;
  borrow_alternate_stack(frame.context);
  report(frame.info->si_signo, frame.info, frame.context);
  set_state(CrashState::kChained);
}

// Whether the report is of this signal: only then the handler's return is noted, and the claim released on the way.
void enter_program(int signal, siginfo_t* info, ucontext_t* context, bool reported, int error_number) {
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
    release_claim();
  }
  enter_handler(delivery, frame, error_number);
}

}  // namespace

ReportedHandler reported_handler(int tid, const ucontext_t* context) noexcept {
  int handling = noted.tid.load(std::memory_order_acquire);
  if (!has_state(CrashState::kChained) || handling == 0) return ReportedHandler::kNone;
  if (handling == tid) return noted.ends || is_inside(context, noted.base) ? ReportedHandler::kRunsHere : ReportedHandler::kLeft;
  return has_left(handling) ? ReportedHandler::kLeft : ReportedHandler::kRunsElsewhere;
}

void note_repair() noexcept {
  noted.tid.store(0, std::memory_order_relaxed);
  repairs.fetch_add(1, std::memory_order_relaxed);
  count_repair();
  std::atomic_ref(g_box.crash.data->also_crashed).store(0, std::memory_order_relaxed);
  set_state(CrashState::kRepaired);
  set_process_state(State::kRecording);
}

bool interrupted_signal(const ucontext_t* context, siginfo_t*& info, ucontext_t*& where) noexcept {
  DeliveredFrame frame{};
  if (!is_inside(context, t_delivered) || !frame_at(t_delivered, frame)) return false;
  info = frame.info;
  where = frame.context;
  return true;
}

void uncount_repair() noexcept {
  if (repairs.load(std::memory_order_relaxed) > 0) std::atomic_ref(g_box.header->faults_repaired).fetch_sub(1, std::memory_order_relaxed);
}

void give_to_program(int signal, siginfo_t* info, ucontext_t* context, int error_number) noexcept {
  enter_program(signal, info, context, false, error_number);
}

// Everything of ours is complete before the program's handler runs: AddressSanitizer's, for example, never returns. A program that
// repairs faults routinely pays for one report.
void handle_for_program(int tid, int signal, siginfo_t* info, ucontext_t* context, int error_number) noexcept {
  wait_while_dying();
  bool abort = may_be_abort(signal, info), reported = false;
  bool habit = repairs.load(std::memory_order_relaxed) > 0 && !abort;
  if (!habit && room_for_report() && claim(tid, signal, info, context)) {
    switch (report_of_handled(reported_handler(tid, context), abort)) {
      case HandledReport::kReport:
        report(signal, info, context);
        set_state(CrashState::kChained);
        reported = true;  // the claim is released on the way into the handler
        break;
      case HandledReport::kLine:
        leave_line(signal, info, context);
        release_claim();
        break;
      case HandledReport::kNothing: release_claim(); break;
      case HandledReport::kRepair:
        note_repair();
        release_claim();
        habit = true;
        break;
    }
  }
  if (habit) count_repair();  // unless the process dies of it: see uncount_repair
  enter_program(signal, info, context, reported, error_number);
  if (reported) release_claim();
}

// The handler of the reported signal returns: the process continues, or it dies now.
void on_handler_returned(ucontext_t* context) noexcept {
  if (noted.tid.load(std::memory_order_acquire) != sys_gettid() || !claim_at_once()) return;
  CrashHeader& crash = *g_box.crash.data;
  int signal = crash.signal;
  bool preloaded = g_box.header->preloaded != 0;
  KernelAction now{};
  sys_action(signal, nullptr, &now);
  bool is_default = preloaded ? disposition_of(action_of(signal)) == Disposition::kDefault : now.handler == nullptr;
  uint64_t pending = 0;
  syscall(SYS_rt_sigpending, &pending, sizeof pending);
  bool raised = (pending & bit_of(signal)) != 0;
  switch (after_handler({noted.by_abort, preloaded, is_default, crash.code > 0, raised})) {
    case AfterHandler::kAbortGoesOn:
      noted.tid.store(0, std::memory_order_relaxed);
      set_process_state(State::kRecording);
      break;
    case AfterHandler::kRepaired: note_repair(); break;
    case AfterHandler::kEndsSoon: noted.ends = true; break;
    case AfterHandler::kEndsNow: {
      begin_dying(sys_gettid());
      take_other_threads(signal, context);
      KernelAction none = default_action(signal);
      sys_action(signal, &none, nullptr);
      break;
    }
  }
  release_claim();
}

void note_normal_exit() noexcept {
  bool reported = has_state(CrashState::kChained);
  if (!reported && t_delivered == 0) return;
  stack_t alternate{};
  syscall(SYS_sigaltstack, nullptr, &alternate);
  // A handler ends the process. A program that repaired faults before has no report of this one yet.
  if (is_inside(reinterpret_cast<uint64_t>(__builtin_frame_address(0)), alternate)) {
    if (reported || !room_for_report() || !claim_at_once()) return;
    pytracer_on_own_stack(0, nullptr, nullptr, report_delivered);
    syscall(SYS_sigaltstack, &alternate, nullptr);
    release_claim();
    return;
  }
  int handling = noted.tid.load(std::memory_order_acquire);
  if (!reported || (handling != 0 && handling != sys_gettid() && !has_left(handling))) return;
  set_state(CrashState::kRepaired);
  set_process_state(State::kRecording);
}

bool may_be_in_handler() noexcept { return t_delivered != 0; }

bool runs_in_handler() noexcept {
  if (t_delivered == 0) return false;
  stack_t alternate{};
  syscall(SYS_sigaltstack, nullptr, &alternate);
  uint64_t here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  return is_inside(here, alternate) && t_delivered - here < kDeepestHandler;
}

void forget_handled() noexcept {
  if (noted.tid.load(std::memory_order_relaxed) != 0) noted.tid.store(0, std::memory_order_relaxed);
}

}  // namespace pytracer::crashsafe
