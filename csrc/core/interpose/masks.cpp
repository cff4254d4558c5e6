#include "core/interpose/masks.h"

#include "core/interpose/libc.h"
#include "core/interpose/preload.h"
#include "core/interpose/sandbox.h"
#include "crashsafe/handler/handled_signal.h"
#include "crashsafe/signals/deliver.h"
#include "crashsafe/signals/install.h"

#include <sys/signalfd.h>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace pytracer::core {
namespace {

using crashsafe::bit_of;
using crashsafe::kFaultSignals;
using crashsafe::kStandIns;

// The kernel reads the first eight bytes of libc's 128.
uint64_t word(const sigset_t& set) {
  uint64_t bits;
  memcpy(&bits, &set, sizeof bits);
  return bits;
}
sigset_t set_of(uint64_t bits) {
  sigset_t set{};
  memcpy(&set, &bits, sizeof bits);
  return set;
}

// Those that may be hidden, and those of them that are ignored.
constinit std::atomic<uint64_t> wanted{0}, ignored_faults{0};

void update_hidden() { crashsafe::hide_faults(wanted.load() & ~ignored_faults.load()); }

// A wait for every signal does not choose a stand-in.
void note_waited_for(const sigset_t& set) {
  uint64_t bits = word(set);
  if ((bits & kStandIns) == 0 || __builtin_popcountll(bits) > 40) return;
  for (int signal = 1; signal <= 64; signal++)
    if ((bits & kStandIns & bit_of(signal)) != 0) give_up_stand_in(signal);
}

int change_mask(int (*real)(int, const sigset_t*, sigset_t*), int how, const sigset_t* set, sigset_t* old) {
  if ((!preloaded && !sandboxed()) || crashsafe::hidden_faults() == 0) return real(how, set, old);
  sigset_t kept;
  if (set != nullptr) {
    uint64_t bits = crashsafe::to_kernel(word(*set));
    // A deferred signal is really blocked; and without our handlers they need not be unblocked.
    if (how == SIG_UNBLOCK || !crashsafe::handlers_installed()) bits |= word(*set) & kFaultSignals;
    // A mask that the handler of a fault saved lacks our mark (from_kernel): Ray's logs under one of its own (boost::asio).
    if (how == SIG_SETMASK && crashsafe::runs_in_handler()) bits |= crashsafe::kInHandler;
    kept = set_of(bits);
    set = &kept;
  }
  int error = real(how, set, old);
  if (error == 0 && old != nullptr) from_kernel(*old);
  return error;
}

}  // namespace

sigset_t to_kernel(const sigset_t& set) noexcept { return set_of(crashsafe::to_kernel(word(set))); }
void from_kernel(sigset_t& set) noexcept {
  uint64_t bits = crashsafe::from_kernel(word(set));
  if (__builtin_popcountll(bits) < 32 && crashsafe::may_be_in_handler()) bits &= ~crashsafe::kInHandler;
  memcpy(&set, &bits, sizeof bits);
}

struct sigaction as_libc_answers(const struct sigaction& action) noexcept {
  struct sigaction answer = action;
#if defined(__x86_64__)
  constexpr int kRestorer = 0x04000000;
  answer.sa_flags |= kRestorer;
  answer.sa_restorer = reinterpret_cast<void (*)()>(const_cast<void*>(crashsafe::end_of_libcs_handlers()));
#endif
  return answer;
}

void hide_faults() noexcept {
  wanted.store(kFaultSignals);
  update_hidden();
}

void hide_ignored(int signal, bool ignored) noexcept {
  uint64_t bit = bit_of(signal) & kFaultSignals;
  uint64_t before = ignored ? ignored_faults.fetch_or(bit) : ignored_faults.fetch_and(~bit);
  if (((before & bit) != 0) != ignored) update_hidden();
}

void give_up_stand_in(int signal) noexcept {
  if ((bit_of(signal) & kStandIns) == 0) return;
  uint64_t bit = bit_of(crashsafe::kFaults[signal - crashsafe::kFirstStandIn]);
  if ((wanted.fetch_and(~bit) & bit) != 0) update_hidden();
}

TruthfulMask::TruthfulMask(const sigset_t& set) noexcept {
  uint64_t faults = preloaded ? word(set) & kFaultSignals : 0, mask = 0;
  if (faults == 0) return;
  crashsafe::sys_mask(SIG_BLOCK, nullptr, &mask);
  blocked_ = crashsafe::believed_blocked(mask) & faults;
  if (blocked_ != 0) crashsafe::sys_mask(SIG_BLOCK, &blocked_, nullptr);
}

TruthfulMask::~TruthfulMask() {
  if (blocked_ == 0) return;
  int error = errno;
  crashsafe::sys_mask(SIG_UNBLOCK, &blocked_, nullptr);  // the handler defers a pending one
  errno = error;
}

void restore_mask() noexcept {
  uint64_t mask = 0;
  crashsafe::sys_mask(SIG_BLOCK, nullptr, &mask);
  uint64_t faults = crashsafe::believed_blocked(mask);
  if (faults == 0) return;
  mask = (mask & ~crashsafe::stand_ins_of(faults)) | faults;
  crashsafe::sys_mask(SIG_SETMASK, &mask, nullptr);
}

void adopt_mask() noexcept {
  uint64_t mask = 0;
  if (crashsafe::hidden_faults() == 0 || crashsafe::sys_mask(SIG_BLOCK, nullptr, &mask) != 0) return;
  uint64_t faults = mask & crashsafe::hidden_faults();
  if (faults == 0) return;
  mask = (mask & ~faults) | crashsafe::stand_ins_of(faults);
  crashsafe::sys_mask(SIG_SETMASK, &mask, nullptr);
}

}  // namespace pytracer::core

using namespace pytracer;

PYTRACER_EXPORT int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return core::change_mask(PYTRACER_REAL(pthread_sigmask), how, set, old);
}
PYTRACER_EXPORT int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return core::change_mask(PYTRACER_REAL(sigprocmask), how, set, old);
}
PYTRACER_EXPORT int sigwait(const sigset_t* set, int* signal) {
  core::note_waited_for(*set);
  core::TruthfulMask waiting(*set);
  return PYTRACER_REAL(sigwait)(set, signal);
}
PYTRACER_EXPORT int sigwaitinfo(const sigset_t* set, siginfo_t* info) {
  core::note_waited_for(*set);
  core::TruthfulMask waiting(*set);
  return PYTRACER_REAL(sigwaitinfo)(set, info);
}
PYTRACER_EXPORT int sigtimedwait(const sigset_t* set, siginfo_t* info, const timespec* timeout) {
  core::note_waited_for(*set);
  core::TruthfulMask waiting(*set);
  return PYTRACER_REAL(sigtimedwait)(set, info, timeout);
}
PYTRACER_EXPORT int signalfd(int fd, const sigset_t* set, int flags) noexcept {
  core::note_waited_for(*set);
  return PYTRACER_REAL(signalfd)(fd, set, flags);
}
