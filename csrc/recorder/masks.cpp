#include "masks.h"

#include "../crashsafe/box.h"
#include "../crashsafe/handler.h"
#include "../crashsafe/thread_state.h"
#include "libc.h"
#include "preload.h"

#include <cerrno>
#include <cstring>

namespace pytracer::recorder {
namespace {

using crashsafe::kFaultSignals;
using crashsafe::t_believed_blocked;

// The kernel reads the first eight bytes of libc's 128.
uint64_t word(const sigset_t& set) {
  uint64_t bits;
  memcpy(&bits, &set, sizeof bits);
  return bits;
}

uint64_t believed_after(int how, uint64_t before, uint64_t faults) {
  switch (how) {
    case SIG_BLOCK: return before | faults;
    case SIG_UNBLOCK: return before & ~faults;
    case SIG_SETMASK: return faults;
    default: return before;
  }
}

// One system call, the program's own; a second one (getpid) only when what a fault may raise changes.
int change_mask(int (*real)(int, const sigset_t*, sigset_t*), int how, const sigset_t* set, sigset_t* old) {
  if (!preloaded) return real(how, set, old);
  uint64_t before = t_believed_blocked, faults = 0;
  sigset_t kept;
  if (set != nullptr) {
    kept = without_faults(*set, faults);
    uint64_t after = believed_after(how, before, faults);
    // A child between vfork and exec has its own mask, but shares our thread-locals, and is about to be another program.
    bool ours = after == before || crashsafe::sys_getpid() == g_box_pid;
    bool hide = ours && crashsafe::handlers_installed();
    // Before the call: a signal that it lets through meets the new belief. Without our handlers nothing new is hidden.
    if (ours) t_believed_blocked = hide || how == SIG_UNBLOCK ? after : how == SIG_SETMASK ? 0 : before;
    if (hide && how != SIG_UNBLOCK) set = &kept;
  }
  int error = real(how, set, old);
  if (error == 0 && old != nullptr) add_faults(*old, before);
  return error;
}

}  // namespace

sigset_t without_faults(const sigset_t& set, uint64_t& taken) noexcept {
  uint64_t bits = word(set);
  taken = bits & kFaultSignals;
  bits &= ~kFaultSignals;
  sigset_t kept{};
  memcpy(&kept, &bits, sizeof bits);
  return kept;
}

void add_faults(sigset_t& set, uint64_t faults) noexcept {
  uint64_t bits = word(set) | faults;
  memcpy(&set, &bits, sizeof bits);
}

TruthfulMask::TruthfulMask(uint64_t of) noexcept : blocked_(preloaded ? of & t_believed_blocked : 0) {
  if (blocked_ != 0) crashsafe::sys_mask(SIG_BLOCK, &blocked_, nullptr);
}

TruthfulMask::~TruthfulMask() {
  if (blocked_ == 0) return;
  int error = errno;
  crashsafe::sys_mask(SIG_UNBLOCK, &blocked_, nullptr);  // one that is pending is held back by the handler
  errno = error;
}

void adopt_mask() noexcept {
  uint64_t blocked = 0;
  if (!crashsafe::handlers_installed() || crashsafe::sys_mask(SIG_BLOCK, nullptr, &blocked) != 0) return;
  blocked &= kFaultSignals;
  t_believed_blocked = blocked;  // first: what is pending comes at once
  if (blocked != 0) crashsafe::sys_mask(SIG_UNBLOCK, &blocked, nullptr);
}

}  // namespace pytracer::recorder

using namespace pytracer;

PYTRACER_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return recorder::change_mask(PYTRACER_REAL(pthread_sigmask), how, set, old);
}
PYTRACER_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return recorder::change_mask(PYTRACER_REAL(sigprocmask), how, set, old);
}
PYTRACER_EXPORT int sigwait(const sigset_t* set, int* signal) {
  recorder::TruthfulMask waiting(recorder::word(*set));
  return PYTRACER_REAL(sigwait)(set, signal);
}
PYTRACER_EXPORT int sigwaitinfo(const sigset_t* set, siginfo_t* info) {
  recorder::TruthfulMask waiting(recorder::word(*set));
  return PYTRACER_REAL(sigwaitinfo)(set, info);
}
PYTRACER_EXPORT int sigtimedwait(const sigset_t* set, siginfo_t* info, const timespec* timeout) {
  recorder::TruthfulMask waiting(recorder::word(*set));
  return PYTRACER_REAL(sigtimedwait)(set, info, timeout);
}
