#include "crashsafe/handler/death.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/handler/dying.h"
#include "crashsafe/handler/handled_signal.h"
#include "crashsafe/handler/report.h"
#include "crashsafe/handler/steps.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/signals/install.h"

#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

void drain(int signal) {
  uint64_t one = bit_of(signal);
  timespec zero{};
  siginfo_t dropped;
  sys_mask(SIG_BLOCK, &one, nullptr);
  while (syscall(SYS_rt_sigtimedwait, &one, &dropped, &zero, sizeof one) == signal) {
  }
}

// A death inside the program's handler: the report is of the fault that the handler got.
void report_death(int signal, siginfo_t* info, ucontext_t* context) {
  siginfo_t* first_info = nullptr;
  ucontext_t* first_context = nullptr;
  if (!interrupted_signal(context, first_info, first_context)) return report(signal, info, context);
  uncount_repair();
  report(first_info->si_signo, first_info, first_context);
}

}  // namespace

// The original siginfo, so that the registers and siginfo in a core dump are those of the fault. A pending copy would be delivered
// instead of ours: drain it first.
void requeue_default(int signal, siginfo_t* info) noexcept {
  KernelAction action = default_action(signal);
  sys_action(signal, &action, nullptr);
  drain(signal);
  if (syscall(SYS_rt_tgsigqueueinfo, sys_getpid(), sys_gettid(), signal, info) != 0)
    syscall(SYS_tgkill, sys_getpid(), sys_gettid(), signal);  // if refused (e.g. seccomp), the exit status is right, siginfo is not
}

void take_other_threads(int signal, ucontext_t* context) noexcept {
  uint64_t ours = our_signals() & ~bit_of(signal);
  sys_mask(SIG_UNBLOCK, &ours, nullptr);
  run_steps(Step::kOtherThreads, Step::kOtherThreads, context, installed_action(signal));
  announce_crash();
}

void die(int tid, int signal, siginfo_t* info, ucontext_t* context) noexcept {
  begin_dying(tid);
  if (room_for_report() && claim(tid, signal, info, context)) {
    switch (report_of_death(reported_handler(tid, context))) {
      case DeathReport::kReportAfterRepair: note_repair(); [[fallthrough]];
      case DeathReport::kReport: report_death(signal, info, context); break;
      case DeathReport::kKeepWithLine: leave_line(signal, info, context); break;
      case DeathReport::kKeep: break;
    }
    set_process_state(State::kCrashed);
    take_other_threads(signal, context);
  }
  requeue_default(signal, info);
  uint64_t mask;
  memcpy(&mask, &context->uc_sigmask, sizeof mask);
  mask &= ~bit_of(signal);
  memcpy(&context->uc_sigmask, &mask, sizeof mask);
  // A queued signal does not end init, only the fault itself does, which occurs again; a breakpoint instruction has been passed.
  if (g_box_pid == 1 && signal == SIGTRAP && info->si_code > 0) set_pc(context, breakpoint_before(pc_of(context)));
}

}  // namespace pytracer::crashsafe
