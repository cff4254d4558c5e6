#include "core/interpose/sent_signals.h"

#include "core/file/box_trim.h"
#include "core/file/journal.h"
#include "core/interpose/libc.h"
#include "core/interpose/masks.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/handler/dying.h"
#include "crashsafe/handler/handler.h"
#include "crashsafe/platform/open_file.h"
#include "crashsafe/signals/actions.h"
#include "crashsafe/text/redact.h"
#include "crashsafe/unwind/own_stack.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace pytracer::core {
namespace {

using crashsafe::Outcome;

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU};

// alarm(), setitimer(), timer_create(): watched only while nothing handles them. A profiler handles them a thousand times a second.
constexpr int kTimers[] = {SIGALRM, SIGVTALRM, SIGPROF};
static_assert(crashsafe::have_actions(kSignals) && crashsafe::have_actions(kTimers));

constexpr size_t kLongestCommand = 512;
constexpr int kNotedAtMost = 200;  // a program may use them for its own purposes

// What a program does after a request to end, its own handler or the next request interrupts: the stacks of the first one stay so long.
constexpr uint64_t kOneRequestNs = 10'000'000'000;

std::atomic<int> noted{0};
std::atomic<uint64_t> stacks_ns{0};  // when the stacks of a handled request were written

// Whether a command line begins with an interpreter.
bool runs_python(const char* command, size_t nbytes) {
  size_t length = strnlen(command, nbytes);
  const char* name = command + length;
  while (name > command && name[-1] != '/') name--;
  return command + length - name >= 6 && memcmp(name, "python", 6) == 0;
}

// True when a Python program ends its child: pools do so every day.
bool write_entry(int signal, const siginfo_t* info, bool handled) {
  if (noted.fetch_add(1, std::memory_order_relaxed) >= kNotedAtMost) return true;
  blackbox::SignalEntry entry{signal, info->si_code, info->si_pid, info->si_uid, crashsafe::sys_gettid(), handled, 0, 0};
  if (info->si_code > 0) entry.sender_pid = 0;  // the kernel: a terminal, a limit
  char command[kLongestCommand], path[48];
  if (entry.sender_pid > 0) {
    snprintf(path, sizeof path, "/proc/%d/cmdline", entry.sender_pid);  // one integer: glibc allocates nothing
    crashsafe::OpenFile file(path);
    long n = file.opened() ? file.read(command, sizeof command) : 0;
    crashsafe::Redacted words = crashsafe::redact_words(command, n > 0 ? static_cast<size_t>(n) : 0);
    entry.command_nbytes = static_cast<uint32_t>(words.nbytes);
    std::atomic_ref(g_box.header->redacted).fetch_add(words.count, std::memory_order_relaxed);
  }
  Piece pieces[] = {{&entry, sizeof entry}, {command, entry.command_nbytes}};
  append(blackbox::EntryKind::kSignalSeen, pieces, 2);
  return entry.sender_pid > 0 && entry.sender_pid == syscall(SYS_getppid) && runs_python(command, entry.command_nbytes);
}

struct Arrived {
  int signal;
  siginfo_t* info;
  Outcome outcome;
  ucontext_t* context;
};

// A process that is ended because it hangs: its stacks show why. Worth a file, unless it is how a pool ends its workers. Python calls a
// handler of the program's when the main thread comes back to it, from a wait that may never end: then SIGKILL follows.
void write_arrived(long, void* raw_arrived, void*) {
  auto* arrived = static_cast<Arrived*>(raw_arrived);
  bool handled = arrived->outcome == Outcome::kHandler;
  bool everyday = write_entry(arrived->signal, arrived->info, handled);
  if (g_box.header->python_minor == 0) return;
  uint64_t now = crashsafe::now_ns(), before = stacks_ns.load(std::memory_order_relaxed);
  if (before != 0 && now - before < kOneRequestNs) return;
  if (arrived->outcome == Outcome::kDefault) {
    if (has_recorded() || (!everyday && crashsafe::ensure_box())) crashsafe::write_stop(arrived->context);
  } else if (handled && has_recorded() && (arrived->signal == SIGTERM || arrived->signal == SIGINT)) {
    stacks_ns.store(now, std::memory_order_relaxed);
    crashsafe::write_handled(arrived->signal, arrived->info, arrived->context);
  }
}

// Two signals may end the process on two threads at once: timeout(1) signals its child and then the group. The thread that comes second
// waits, or it would end the process while the first one writes. Not for ever: the first may have been ended by other means.
std::atomic<int> ending_thread{0};
constexpr uint64_t kMostWaitNs = 2'000'000'000;

void end_alone() {
  const uint64_t start = crashsafe::now_ns();
  for (int none = 0; !ending_thread.compare_exchange_strong(none, crashsafe::sys_gettid()); none = 0) {
    if (none == crashsafe::sys_gettid() || crashsafe::now_ns() - start > kMostWaitNs) return;
    timespec t{0, 1'000'000};
    syscall(SYS_nanosleep, &t, nullptr);
  }
}

// The program's alternate stack may have room for its handler and no more. No signal may interrupt this: the kernel would put its frame
// on top of that stack, over this signal's frame, while we run on another stack.
void write_on_own_stack(int signal, siginfo_t* info, Outcome outcome, ucontext_t* context) {
  Arrived arrived{signal, info, outcome, context};
  uint64_t every = ~0ull, before = 0;
  crashsafe::sys_mask(SIG_BLOCK, &every, &before);
  crashsafe::pytracer_on_own_stack(0, &arrived, nullptr, write_arrived);
  crashsafe::sys_mask(SIG_SETMASK, &before, nullptr);
}

// The default action with the original siginfo, when our handler returns.
void end_as_default(int signal, siginfo_t* info) {
  crashsafe::KernelAction action{}, now{};
  crashsafe::sys_action(signal, nullptr, &now);
  action.flags = now.flags & 0x04000000;  // SA_RESTORER
  action.restorer = now.restorer;
  crashsafe::sys_action(signal, &action, nullptr);
  if (syscall(SYS_rt_tgsigqueueinfo, crashsafe::sys_getpid(), crashsafe::sys_gettid(), signal, info) != 0)
    syscall(SYS_tgkill, crashsafe::sys_getpid(), crashsafe::sys_gettid(), signal);
}

void on_sent(int signal, siginfo_t* info, void* context);

// Stays true after a handler that left by siglongjmp().
thread_local bool in_handler = false;

bool is_timer(int signal) { return crashsafe::is_among(kTimers, signal); }

// The action that the kernel gets: the flags and the mask of the program's decide how system calls are interrupted.
struct sigaction in_kernel(int signal, const struct sigaction& action) {
  struct sigaction ours = action;
  if (action.sa_handler == SIG_IGN) return ours;
  ours.sa_mask = to_kernel(action.sa_mask);
  if (is_timer(signal) && action.sa_handler != SIG_DFL) return ours;
  ours.sa_sigaction = on_sent;
  ours.sa_flags = (action.sa_flags | SA_SIGINFO) & ~static_cast<int>(SA_RESETHAND);
  return ours;
}

void on_sent(int signal, siginfo_t* info, void* context) {
  int saved_errno = errno;
  struct sigaction action = crashsafe::action_of(signal);
  bool own_process = crashsafe::sys_getpid() == g_box_pid;
  Outcome outcome = crashsafe::decide({crashsafe::disposition_of(action), false, false, own_process && g_box_pid == 1});
  if (own_process && outcome == Outcome::kDefault) end_alone();
  if (own_process) write_on_own_stack(signal, info, outcome, static_cast<ucontext_t*>(context));
  if (outcome == Outcome::kDefault) {
    if (own_process) trim_at_exit(1);
    end_as_default(signal, info);
  }
  if (outcome != Outcome::kHandler) {
    errno = saved_errno;
    return;
  }
  if (action.sa_flags & static_cast<int>(SA_RESETHAND)) crashsafe::reset_action(signal, action);
  errno = saved_errno;
  bool before = in_handler;
  in_handler = true;
  if (action.sa_flags & SA_SIGINFO)
    action.sa_sigaction(signal, info, context);
  else
    action.sa_handler(signal);
  in_handler = before;
}

}  // namespace

// In most children there is none: a page that is not written is not copied.
void forget_ending() noexcept {
  if (ending_thread.load(std::memory_order_relaxed) != 0) ending_thread.store(0, std::memory_order_relaxed);
}

bool in_sent_handler() noexcept { return in_handler; }

bool asks_to_end(int signal) noexcept { return crashsafe::is_among(kSignals, signal) || is_timer(signal); }

namespace {

void watch(int signal) {
  struct sigaction action{};
  if (PYTRACER_REAL(sigaction)(signal, nullptr, &action) != 0) return;
  crashsafe::exchange_action(signal, action, nullptr);  // before ours is live
  struct sigaction ours = in_kernel(signal, action);
  if (action.sa_handler == SIG_DFL) ours.sa_flags |= SA_RESTART;
  PYTRACER_REAL(sigaction)(signal, &ours, nullptr);
}

void unwatch(int signal) {
  struct sigaction now{};
  if (PYTRACER_REAL(sigaction)(signal, nullptr, &now) != 0 || now.sa_sigaction != on_sent) return;
  struct sigaction action = crashsafe::action_of(signal);
  PYTRACER_REAL(sigaction)(signal, &action, nullptr);
}

// The program's own. A timer's handler is the kernel's, which may have taken it back (SA_RESETHAND).
struct sigaction current(int signal) {
  struct sigaction now{};
  if (!is_timer(signal) || PYTRACER_REAL(sigaction)(signal, nullptr, &now) != 0 || now.sa_sigaction == on_sent) return crashsafe::action_of(signal);
  from_kernel(now.sa_mask);
  return now;
}

}  // namespace

void watch_sent_signals() noexcept {
  for (int signal : kSignals) watch(signal);
  for (int signal : kTimers) watch(signal);
}

void unwatch_sent_signals() noexcept {
  for (int signal : kSignals) unwatch(signal);
  for (int signal : kTimers) unwatch(signal);
}

int set_sent_action(int signal, const struct sigaction* act, struct sigaction* old) noexcept {
  struct sigaction before = current(signal);
  if (act != nullptr) {
    struct sigaction answer = as_libc_answers(*act);
    crashsafe::exchange_action(signal, answer, nullptr);
    struct sigaction ours = in_kernel(signal, *act);
    int error = PYTRACER_REAL(sigaction)(signal, &ours, nullptr);
    if (error != 0) {
      crashsafe::exchange_action(signal, before, nullptr);
      return error;
    }
  }
  if (old != nullptr) *old = before;
  return 0;
}

}  // namespace pytracer::core
