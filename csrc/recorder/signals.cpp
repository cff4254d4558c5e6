// Handlers and alternate stacks of the program below preload: remembered and reported back, while ours stay in place.
#include "../crashsafe/box.h"
#include "../crashsafe/handler.h"
#include "alternate_stack.h"
#include "libc.h"
#include "masks.h"
#include "preload.h"
#include "sent_signals.h"

#include <sys/auxv.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <csignal>

namespace {

using namespace pytracer;

// What was taken out of the sa_mask of handlers for signals that are not ours.
constinit std::atomic<uint64_t> taken_masks[65] = {};

// A handler that runs with everything blocked may fault too.
int set_other_action(int signal, const struct sigaction* act, struct sigaction* old) {
  auto real = PYTRACER_REAL(sigaction);
  if (!recorder::preloaded || signal < 1 || signal > 64) return real(signal, act, old);
  uint64_t before = taken_masks[signal].load(std::memory_order_relaxed), after = before;
  struct sigaction kept;
  if (act != nullptr) {
    uint64_t taken = 0;
    kept = *act;
    kept.sa_mask = recorder::without_faults(act->sa_mask, taken);
    // A child between vfork and exec has handlers of its own, but shares this table.
    if ((taken | before) != 0 && crashsafe::sys_getpid() == g_box_pid) after = crashsafe::handlers_installed() ? taken : 0;
    if (taken != 0 && after == taken) act = &kept;
  }
  int error = real(signal, act, old);
  if (error != 0) return error;
  if (old != nullptr) recorder::add_faults(old->sa_mask, before);
  if (after != before) taken_masks[signal].store(after, std::memory_order_relaxed);
  return 0;
}

int set_action(int signal, const struct sigaction* act, struct sigaction* old) {
  bool sent = recorder::asks_to_end(signal);
  if (!crashsafe::is_ours(signal) && !sent) return set_other_action(signal, act, old);
  // That child shares our memory but not our handlers: its sigaction must not change our table.
  if (!recorder::preloaded || !crashsafe::handlers_installed() || crashsafe::sys_getpid() != g_box_pid)
    return PYTRACER_REAL(sigaction)(signal, act, old);
  if (sent) return recorder::set_sent_action(signal, act, old);
  crashsafe::exchange_action(signal, act, old);
  return 0;
}

}  // namespace

PYTRACER_EXPORT int sigaction(int signal, const struct sigaction* act, struct sigaction* old) noexcept { return set_action(signal, act, old); }
PYTRACER_EXPORT int __sigaction(int signal, const struct sigaction* act, struct sigaction* old) noexcept { return set_action(signal, act, old); }

PYTRACER_EXPORT sighandler_t signal(int number, sighandler_t handler) noexcept {
  bool remembered = number > 0 && number < 65 &&
                    (crashsafe::is_ours(number) || recorder::asks_to_end(number) || taken_masks[number].load(std::memory_order_relaxed) != 0);
  if (!recorder::preloaded || !remembered) return PYTRACER_REAL(signal)(number, handler);
  struct sigaction act{};
  struct sigaction old{};
  act.sa_handler = handler;
  act.sa_flags = SA_RESTART;
  sigemptyset(&act.sa_mask);
  sigaddset(&act.sa_mask, number);
  return set_action(number, &act, &old) != 0 ? SIG_ERR : old.sa_handler;
}

// Ours is larger and has a guard page: it stays, and theirs is reported back to them.
PYTRACER_EXPORT int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  if (!recorder::preloaded || !recorder::has_our_stack() || crashsafe::sys_getpid() != g_box_pid)
    return static_cast<int>(syscall(SYS_sigaltstack, stack, old));
  stack_t current{};
  syscall(SYS_sigaltstack, nullptr, &current);
  stack_t& believed = recorder::believed_stack();
  stack_t before = believed;
  if (stack != nullptr) {
    if (current.ss_flags & SS_ONSTACK) return errno = EPERM, -1;
    if (!(stack->ss_flags & SS_DISABLE) && stack->ss_size < getauxval(AT_MINSIGSTKSZ)) return errno = ENOMEM, -1;
    believed = *stack;
  }
  if (old != nullptr) *old = before;
  return 0;
}
