#include "crashsafe/signals/install.h"

#include "blackbox/layout.h"
#include "crashsafe/signals/actions.h"
#include "crashsafe/signals/deliver.h"
#include "crashsafe/unwind/native_stack.h"
#include "crashsafe/unwind/own_stack.h"

#include <atomic>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using blackbox::kRequestSignal;

constexpr unsigned long kRestorerFlag = 0x04000000;

KernelAction in_kernel[65];  // what the kernel has while we are installed
std::atomic<bool> installed{false};
const char* announce_directory = nullptr;

}  // namespace

const KernelAction& installed_action(int signal) noexcept { return in_kernel[signal]; }
const char* announced_directory() noexcept { return announce_directory; }

KernelAction default_action(int signal) noexcept {
  KernelAction action{};
  action.flags = in_kernel[signal].flags & kRestorerFlag;
  action.restorer = in_kernel[signal].restorer;
  return action;
}

struct sigaction handler_for(int signal, const struct sigaction& program) noexcept {
  struct sigaction action = program;
  Disposition disposition = disposition_of(program);
  if (disposition == Disposition::kIgnored) return action;
  action.sa_sigaction = signal == kRequestSignal ? pytracer_enter_request : pytracer_enter_fault;
  bool restart = restarts_calls(disposition, (program.sa_flags & SA_RESTART) != 0);
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (restart ? SA_RESTART : 0);
  // No handler of the program may run on our stack. Left unblocked: faults, our own requests and deadlines, setuid() and cancellation.
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
    KernelAction back = default_action(signal);
    back.handler = reinterpret_cast<void*>(old.sa_handler);
    back.flags |= static_cast<unsigned long>(old.sa_flags);
    memcpy(&back.mask, &old.sa_mask, sizeof back.mask);
    sys_action(signal, &back, nullptr);
  }
}

bool is_request_handler(const struct sigaction& action) noexcept { return action.sa_sigaction == pytracer_enter_request; }
bool handlers_installed() noexcept { return installed.load(std::memory_order_acquire); }

}  // namespace pytracer::crashsafe
