// Callable wherever kill() is: in a signal handler, on a small alternate stack, in a child between vfork and exec. What is written is
// bounded, by system calls and checked reads.
#include "core/interpose/signal_sends.h"

#include "core/file/box_trim.h"
#include "core/file/journal.h"
#include "core/file/python_stacks.h"
#include "core/file/run_counters.h"
#include "core/file/run_directory.h"
#include "core/interpose/libc.h"
#include "core/interpose/preload.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/box_gate.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/platform/process_status.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/text/bounded_text.h"
#include "crashsafe/unwind/images.h"
#include "crashsafe/unwind/own_stack.h"

#include <pthread.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <csignal>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint32_t kMostSends = 1000;                          // of one process: at most 0.2 MB of the journal
constexpr uint32_t kMostOwnEnds = 200, kMostLargeOwnEnds = 8;  // files of the run, beyond which a process that ends itself gets none
constexpr unsigned kToProcessGroup = 4;                        // PIDFD_SIGNAL_PROCESS_GROUP

std::atomic<uint32_t> sends{0};

struct Send {
  int signal, target;
  bool to_group;
  uint64_t caller;
  uint32_t id = 0;  // of the entry
};

bool is_noted(int signal, bool to_itself) {
  if (to_itself) return signal == SIGKILL || signal == SIGSTOP;  // of others it records the arrival, or the crash
  return signal > 0 && signal <= 64 && signal != SIGCONT && signal != SIGCHLD && signal != SIGURG && signal != SIGWINCH;
}

// Worth a file of its own. Signals that programs use among themselves are not: a note is made where there is a file anyway.
bool ends_processes(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT || signal == SIGXCPU ||
         signal == SIGSTOP || crashsafe::is_ours(signal);
}

// A program may fork children by the thousand that end themselves so. With their parent's tables a file takes 6 MB instead of 12 KiB.
bool room_for_own_end(const Send& send) {
  if (send.target != g_box_pid || send.to_group) return true;
  RunCounters* counters = run_counters();
  bool tables = crashsafe::g_where.load(std::memory_order_relaxed) == crashsafe::Where::kCopied;
  return counters != nullptr && counters->boxes.load(std::memory_order_relaxed) < (tables ? kMostLargeOwnEnds : kMostOwnEnds);
}

void write_send(long, void* raw_send, void*) {
  auto& send = *static_cast<Send*>(raw_send);
  if (ends_processes(send.signal) && !crashsafe::has_box() && (!room_for_own_end(send) || !crashsafe::ensure_box())) return;
  if (!crashsafe::has_box() && g_box.header->journal_used > g_box.journal.items / 2ull) return;
  SignalSentEntry entry{};
  entry.signal = send.signal;
  entry.target = send.target;
  entry.to_group = send.to_group;
  entry.result = -1;
  entry.tid = crashsafe::sys_gettid();
  entry.caller = send.caller;
  if (send.target > 0 && !send.to_group) {
    char path[48];
    crashsafe::BoundedText(path, sizeof path).add("/proc/").add(static_cast<uint32_t>(send.target)).add("/stat");
    crashsafe::ProcessStart start = crashsafe::read_start(path);
    entry.target_ticks = start.ticks;
    entry.target_state = static_cast<uint32_t>(start.state);
  }
  entry.stack_id = python_stack_entry(kMostSends);
  char image[512];
  entry.image_nbytes = crashsafe::copy_image_path(send.caller, image, sizeof image, entry.caller_offset);
  Piece pieces[] = {{&entry, sizeof entry}, {image, entry.image_nbytes}};
  send.id = append(EntryKind::kSignalSent, pieces, 2);
  if (send.signal == SIGKILL && send.target == g_box_pid && !send.to_group) trim_at_exit(1);
}

void note_send(Send& send) {
  if (!recording() || stopped() || crashsafe::sys_getpid() != g_box_pid) return;
  if (send.to_group && send.target == 0) send.target = getpgrp();
  if (!is_noted(send.signal, !send.to_group && send.target == g_box_pid)) return;
  if (sends.fetch_add(1, std::memory_order_relaxed) >= kMostSends) return;
  crashsafe::run_undisturbed(&send, write_send);
}

void note_result(const Send& send, int result) {
  if (send.id == 0 || !recording() || crashsafe::sys_getpid() != g_box_pid) return;
  crashsafe::BoxGate gate;
  size_t at = send.id * 8ull + sizeof(EntryHeader);
  if (!gate.open() || at + sizeof(SignalSentEntry) > g_box.journal.items) return;
  auto& entry = *reinterpret_cast<SignalSentEntry*>(g_box.journal.data + at);
  std::atomic_ref(entry.result).store(result, std::memory_order_release);
}

template <class Call>
auto noted(Send send, Call call) {
  if (send.signal == 0 || !preloaded) return call();
  int before = errno;
  note_send(send);
  errno = before;
  auto result = call();
  int after = errno;
  note_result(send, result > 0 ? static_cast<int>(result) : result == 0 ? 0 : after);
  errno = after;
  return result;
}

// kill(): 0 is the caller's own process group, what is below a group's number, -1 every process.
Send to_process(int pid, int signal, void* caller) {
  uint64_t from = reinterpret_cast<uint64_t>(caller);
  return pid > 0 ? Send{signal, pid, false, from} : Send{signal, pid == -1 ? -1 : -pid, true, from};
}

auto real_kill() { return PYTRACER_REAL(kill); }
auto real_killpg() { return PYTRACER_REAL(killpg); }
auto real_sigqueue() { return PYTRACER_REAL(sigqueue); }
auto real_raise() { return PYTRACER_REAL(raise); }
auto real_pthread_kill() { return PYTRACER_REAL(pthread_kill); }

}  // namespace

void resolve_signal_sends() noexcept {
  real_kill();
  real_killpg();
  real_sigqueue();
  real_raise();
  real_pthread_kill();
}

void forget_sends() noexcept {
  if (sends.load(std::memory_order_relaxed) == 0) return;  // in most children: a page that is not written is not copied
  sends.store(0, std::memory_order_relaxed);
}

long send_by_descriptor(int descriptor, int signal, unsigned flags, const void* caller, long (*call)(const void*), const void* argument) noexcept {
  int target = signal != 0 && preloaded ? crashsafe::pid_of_descriptor(descriptor) : 0;
  return noted(Send{signal, target, (flags & kToProcessGroup) != 0, reinterpret_cast<uint64_t>(caller)}, [=] { return call(argument); });
}

}  // namespace pytracer::core

using namespace pytracer;

PYTRACER_EXPORT int kill(pid_t pid, int signal) noexcept {
  return core::noted(core::to_process(pid, signal, __builtin_return_address(0)), [=] { return core::real_kill()(pid, signal); });
}
PYTRACER_EXPORT int killpg(pid_t group, int signal) noexcept {
  auto caller = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  return core::noted(core::Send{signal, group, true, caller}, [=] { return core::real_killpg()(group, signal); });
}
PYTRACER_EXPORT int sigqueue(pid_t pid, int signal, const sigval value) noexcept {
  return core::noted(core::to_process(pid, signal, __builtin_return_address(0)), [=] { return core::real_sigqueue()(pid, signal, value); });
}
PYTRACER_EXPORT int tgkill(pid_t process, pid_t thread, int signal) noexcept {
  auto call = [=] { return static_cast<int>(syscall(SYS_tgkill, process, thread, signal)); };
  return core::noted(core::to_process(process, signal, __builtin_return_address(0)), call);
}

// Of this process: only what leaves no trace in it. The others are tail calls, without a frame of ours.
PYTRACER_EXPORT int raise(int signal) noexcept {
  if (signal != SIGKILL && signal != SIGSTOP) return core::real_raise()(signal);
  return core::noted(core::to_process(getpid(), signal, __builtin_return_address(0)), [=] { return core::real_raise()(signal); });
}
PYTRACER_EXPORT int pthread_kill(pthread_t thread, int signal) noexcept {
  if (signal != SIGKILL && signal != SIGSTOP) return core::real_pthread_kill()(thread, signal);
  return core::noted(core::to_process(getpid(), signal, __builtin_return_address(0)), [=] { return core::real_pthread_kill()(thread, signal); });
}

// glibc 2.36 and later. syscall() is ours: see sandbox.cpp.
PYTRACER_EXPORT int pidfd_send_signal(int descriptor, int signal, siginfo_t* info, unsigned flags) noexcept {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, descriptor, signal, info, flags));
}
