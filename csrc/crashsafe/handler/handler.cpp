#include "crashsafe/handler/handler.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/mapping.h"
#include "crashsafe/handler/death.h"
#include "crashsafe/handler/dying.h"
#include "crashsafe/handler/handled_signal.h"
#include "crashsafe/handler/report.h"
#include "crashsafe/handler/steps.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/signals/actions.h"
#include "crashsafe/signals/install.h"
#include "crashsafe/signals/stand_ins.h"
#include "crashsafe/threads/other_threads.h"
#include "crashsafe/unwind/own_stack.h"

#include <atomic>
#include <cerrno>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

// Another process requests the stacks of this running one (pytracer attach). A crash at the same time comes first or waits.
void on_request(int signal, siginfo_t* info, ucontext_t* context) {
  int saved_errno = errno;
  borrow_alternate_stack(context);
  bool wanted = info->si_code == SI_QUEUE && static_cast<uint32_t>(info->si_value.sival_int) == kRequestValue;
  if (!wanted || sys_getpid() != g_box_pid) {  // the same number, for another purpose: as untraced
    requeue_default(signal, info);
    errno = saved_errno;
    return;
  }
  if (claim_at_once()) {
    if (!room_for_report()) return release_claim();
    uint64_t old_mask = 0;
    sys_mask(SIG_BLOCK, nullptr, &old_mask);
    begin_report(signal, info, context, CrashState::kLive);
    run_steps(Step::kSignal, Step::kOtherThreads, context, installed_action(signal));
    run_steps(Step::kNames, Step::kHolders, context, installed_action(signal));
    std::atomic_ref(g_box.header->live_reports).fetch_add(1, std::memory_order_release);
    release_claim();
    sys_mask(SIG_SETMASK, &old_mask, nullptr);
  }
  errno = saved_errno;
}

// A fault of our own outside of a report: a lost page of the black box, or a checked read.
bool recover_own(int signal, siginfo_t* info, ucontext_t* context) {
  if (info->si_code <= 0) return false;
  return (signal == SIGBUS && replace_lost_page(reinterpret_cast<uint64_t>(info->si_addr))) || recover_read(context);
}

// A fault of a thread that walks its stack for the report, or of the reporter: in a step, which is given up, or in our own last lines.
bool recover_report(int tid, int signal, siginfo_t* info, ucontext_t* context) {
  if (info->si_code > 0 && recover_walk(tid, context)) return true;
  if (reporter() != tid) return false;
  if (!recover_step(context)) requeue_default(signal, info);
  return true;
}

// Blocked by the program on this thread. A signal that the kernel does not block, although its stand-in is blocked, was unblocked by
// sigsuspend or ppoll, as the program wants.
bool is_blocked(int signal, const ucontext_t* context) {
  uint64_t mask;
  memcpy(&mask, &context->uc_sigmask, sizeof mask);
  return (believed_blocked(mask) & ~mask & bit_of(signal)) != 0;
}

void handle(int signal, siginfo_t* info, ucontext_t* context) {
  int saved_errno = errno, tid = 0;
  borrow_alternate_stack(context);
  if (recover_own(signal, info, context) || recover_report(tid = sys_gettid(), signal, info, context)) {
    errno = saved_errno;
    return;
  }
  Disposition disposition = disposition_of(action_of(signal));
  if (sys_getpid() != g_box_pid) {  // a vfork child: the memory is the parent's, the death is its own
    if (disposition == Disposition::kFunction) give_to_program(signal, info, context, saved_errno);
    requeue_default(signal, info);
    errno = saved_errno;
    return;
  }
  Outcome outcome = decide({disposition, info->si_code > 0, is_blocked(signal, context), g_box_pid == 1});
  if (outcome == Outcome::kDefer && !defer_signal(signal, info, context)) outcome = Outcome::kDefault;
  if (outcome == Outcome::kHandler) {
    handle_for_program(tid, signal, info, context, saved_errno);
    outcome = Outcome::kDefault;  // no room for the frame of its handler
  }
  if (outcome == Outcome::kDefault) die(tid, signal, info, context);
  errno = saved_errno;
}

// The steps that take a millisecond. A report of a crash, or of an end, stays.
void write_stacks(int signal, siginfo_t* info, ucontext_t* context, CrashState state, bool values) {
  auto before = static_cast<CrashState>(g_box.crash.data->state);
  if (!handlers_installed() || (before != CrashState::kNone && before != CrashState::kLive) || !room_for_report() || !claim_at_once()) return;
  uint64_t old_mask = 0;
  sys_mask(SIG_BLOCK, nullptr, &old_mask);
  begin_report(signal, info, context, state);
  run_steps(Step::kSignal, Step::kImages, context, installed_action(SIGSEGV));
  if (values) run_steps(Step::kHolders, Step::kHolders, context, installed_action(SIGSEGV));
  release_claim();
  sys_mask(SIG_SETMASK, &old_mask, nullptr);
}

}  // namespace

void forget_reports() noexcept {
  forget_claim();
  forget_handled();
  forget_dying();
}

void write_stop(ucontext_t* context) noexcept {
  siginfo_t none{};
  write_stacks(0, &none, context, CrashState::kExit, true);
}

void write_handled(int signal, siginfo_t* info, ucontext_t* context) noexcept { write_stacks(signal, info, context, CrashState::kLive, true); }

void write_here(ucontext_t* context) noexcept {
  set_pc(context, reinterpret_cast<uint64_t>(__builtin_return_address(0)));  // the walk begins at our caller
  siginfo_t none{};
  write_stacks(0, &none, context, CrashState::kLive, true);
}

void write_exit(ucontext_t* context) noexcept {
  set_pc(context, reinterpret_cast<uint64_t>(__builtin_return_address(0)));  // the walk begins at our caller
  siginfo_t none{};
  write_stacks(0, &none, context, CrashState::kExit, false);
}

}  // namespace pytracer::crashsafe

extern "C" {
__attribute__((visibility("hidden"))) void pytracer_on_fault(long signal, void* info, void* context) noexcept {
  pytracer::crashsafe::handle(static_cast<int>(signal), static_cast<siginfo_t*>(info), static_cast<ucontext_t*>(context));
}
__attribute__((visibility("hidden"))) void pytracer_on_request(long signal, void* info, void* context) noexcept {
  pytracer::crashsafe::on_request(static_cast<int>(signal), static_cast<siginfo_t*>(info), static_cast<ucontext_t*>(context));
}
}
