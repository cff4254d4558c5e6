// Handlers and alternate stacks of the program under preload: kept and returned to it, while ours stay installed.
#include "core/interpose/libc.h"
#include "core/interpose/masks.h"
#include "core/interpose/preload.h"
#include "core/interpose/sandbox.h"
#include "core/interpose/sent_signals.h"
#include "core/process/alternate_stack.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/signals/actions.h"
#include "crashsafe/signals/decision.h"
#include "crashsafe/signals/install.h"

#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace {

using namespace pytracer;

// By signal: siginterrupt() was called, and signal() no longer sets SA_RESTART.
constinit std::atomic<bool> interrupts[65] = {};

// The mask of a handler may block faults, too, although a handler that runs with everything blocked may fault.
int set_translated_action(int signal, const struct sigaction* act, struct sigaction* old) {
  auto real = PYTRACER_REAL(sigaction);
  struct sigaction kept;
  if (act != nullptr) {
    kept = *act;
    if (kept.sa_handler != SIG_DFL) core::give_up_stand_in(signal);
    kept.sa_mask = core::to_kernel(act->sa_mask);
  }
  int error = real(signal, act != nullptr ? &kept : nullptr, old);
  if (error != 0 || old == nullptr) return error;
  core::from_kernel(old->sa_mask);
  if (signal == static_cast<int>(blackbox::kRequestSignal) && crashsafe::is_request_handler(*old)) *old = {};
  return 0;
}

int set_fault_action(int signal, const struct sigaction* act, struct sigaction* old) {
  struct sigaction before = crashsafe::action_of(signal);
  if (act != nullptr) {
    bool ignored = act->sa_handler == SIG_IGN;
    if (ignored) core::hide_ignored(signal, true);
    struct sigaction answer = core::as_libc_answers(*act);
    crashsafe::exchange_action(signal, answer, &before);
    struct sigaction ours = crashsafe::handler_for(signal, *act);
    int error = PYTRACER_REAL(sigaction)(signal, &ours, nullptr);
    if (error != 0) {
      crashsafe::exchange_action(signal, before, nullptr);
      return error;
    }
    if (!ignored) core::hide_ignored(signal, false);
  }
  if (old != nullptr) *old = before;
  return 0;
}

}  // namespace

void core::restore_handler_masks() noexcept {
  for (int signal = 1; signal < 65; signal++) {
    struct sigaction action{};
    if (PYTRACER_REAL(sigaction)(signal, nullptr, &action) != 0) continue;
    sigset_t before = action.sa_mask;
    core::from_kernel(action.sa_mask);
    if (memcmp(&before, &action.sa_mask, sizeof(uint64_t)) != 0) PYTRACER_REAL(sigaction)(signal, &action, nullptr);
  }
}

namespace {

int set_action(int signal, const struct sigaction* act, struct sigaction* old) {
  crashsafe::ActionCall call{};
  call.handled = crashsafe::is_ours(signal);
  call.termination = core::asks_to_end(signal);
  call.preloaded = core::preloaded;
  call.installed = crashsafe::handlers_installed();
  // Asked only where it decides: a process in a sandbox makes no system call of ours.
  call.own_process = call.preloaded && call.installed && (call.handled || call.termination) && crashsafe::sys_getpid() == g_box_pid;
  switch (crashsafe::route_of(call)) {
    case crashsafe::ActionRoute::kTranslated: return set_translated_action(signal, act, old);
    case crashsafe::ActionRoute::kTermination: return core::set_sent_action(signal, act, old);
    case crashsafe::ActionRoute::kFault: return set_fault_action(signal, act, old);
    case crashsafe::ActionRoute::kKernel: break;
  }
  return PYTRACER_REAL(sigaction)(signal, act, old);
}

}  // namespace

PYTRACER_EXPORT int sigaction(int signal, const struct sigaction* act, struct sigaction* old) noexcept { return set_action(signal, act, old); }
PYTRACER_EXPORT int __sigaction(int signal, const struct sigaction* act, struct sigaction* old) noexcept { return set_action(signal, act, old); }

PYTRACER_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
  if (!core::preloaded) return PYTRACER_REAL(signal)(number, handler);
  struct sigaction act{};
  struct sigaction old{};
  act.sa_handler = handler;
  act.sa_flags = number > 0 && number < 65 && interrupts[number].load(std::memory_order_relaxed) ? 0 : SA_RESTART;
  sigemptyset(&act.sa_mask);
  sigaddset(&act.sa_mask, number);
  return set_action(number, &act, &old) != 0 ? SIG_ERR : old.sa_handler;
}

// The older interfaces, for which libc does not call sigaction.
PYTRACER_EXPORT sighandler_t bsd_signal(int number, sighandler_t handler) noexcept { return signal(number, handler); }
PYTRACER_EXPORT sighandler_t ssignal(int number, sighandler_t handler) noexcept { return signal(number, handler); }
PYTRACER_EXPORT sighandler_t sysv_signal(int number, sighandler_t handler) noexcept {
  struct sigaction act{};
  struct sigaction old{};
  if (handler == SIG_ERR || number < 1 || number > 64) return errno = EINVAL, SIG_ERR;
  act.sa_handler = handler;
  act.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  return sigaction(number, &act, &old) != 0 ? SIG_ERR : old.sa_handler;
}
PYTRACER_EXPORT sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept { return sysv_signal(number, handler); }
PYTRACER_EXPORT int siginterrupt(int number, int flag) noexcept {
  struct sigaction act{};
  if (sigaction(number, nullptr, &act) != 0) return -1;
  if (number > 0 && number < 65) interrupts[number].store(flag != 0, std::memory_order_relaxed);
  act.sa_flags = flag != 0 ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
  return sigaction(number, &act, nullptr);
}

PYTRACER_EXPORT int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  if (!core::preloaded && !core::sandboxed()) return static_cast<int>(syscall(SYS_sigaltstack, stack, old));
  return core::set_alternate_stack(stack, old);
}
