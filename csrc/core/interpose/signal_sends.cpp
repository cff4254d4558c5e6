// Callable wherever kill() is: in a signal handler, on a small alternate stack, in a child between vfork and exec. What is written is
// bounded, by system calls and checked reads.
#include "core/interpose/signal_sends.h"

#include "core/file/box_trim.h"
#include "core/file/journal.h"
#include "core/file/run_counters.h"
#include "core/file/run_directory.h"
#include "core/interpose/libc.h"
#include "core/interpose/preload.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/box_gate.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/platform/process_status.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/python/python_stack.h"
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
constexpr uint32_t kPlaces = 12;
constexpr uint32_t kCodes = 128;  // power of two
constexpr uint32_t kMostText = 4096, kMostTable = 8192;
constexpr unsigned kToProcessGroup = 4;  // PIDFD_SIGNAL_PROCESS_GROUP

std::atomic<uint32_t> sends{0};

// What a code object in the journal is recognized by: its address may be another one's later.
struct KnownCode {
  uint64_t code, name, file, table;
  uint32_t id, generation;
};
KnownCode known[kCodes];
std::atomic<bool> known_in_use{false};
uint32_t generation = 1;

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

// Every page can be read: what was read of this thread's own frames is stable, but it may not be what it seems.
bool is_readable(uint64_t at, uint32_t nbytes) {
  char byte;
  for (uint64_t offset = 0; offset < nbytes; offset += 4096)
    if (!crashsafe::read_bytes(&byte, at + offset, 1)) return false;
  return nbytes == 0 || crashsafe::read_bytes(&byte, at + nbytes - 1, 1);
}

struct Text {
  Piece piece{nullptr, 0};
  uint32_t kind = 1;
};
Text text_of(uint64_t object) {
  crashsafe::PythonText text{};
  if (!crashsafe::python_text(object, text) || text.nbytes > kMostText || !is_readable(text.data, text.nbytes)) return {};
  return {{reinterpret_cast<const void*>(text.data), text.nbytes}, text.kind};
}

Piece table_of(uint64_t table) {
  const auto& at = *crashsafe::python_offsets();
  uint64_t nbytes = 0;
  if (!crashsafe::read_value(nbytes, table + static_cast<uint64_t>(at.bytes_size))) return {nullptr, 0};
  if (nbytes > kMostTable) nbytes = nbytes < 1 << 20 ? kMostTable : 0;
  uint64_t data = table + static_cast<uint64_t>(at.bytes_data);
  return is_readable(data, static_cast<uint32_t>(nbytes)) ? Piece{reinterpret_cast<const void*>(data), nbytes} : Piece{nullptr, 0};
}

uint32_t code_id(uint64_t code) {
  const auto& at = *crashsafe::python_offsets();
  KnownCode key{code, 0, 0, 0, 0, generation};
  int32_t first_line = 0;
  if (!crashsafe::read_value(key.name, code + static_cast<uint64_t>(at.co_qualname)) ||
      !crashsafe::read_value(key.file, code + static_cast<uint64_t>(at.co_filename)) ||
      !crashsafe::read_value(key.table, code + static_cast<uint64_t>(at.co_linetable)) ||
      !crashsafe::read_value(first_line, code + static_cast<uint64_t>(at.co_firstlineno)))
    return 0;
  KnownCode& slot = known[(code >> 4 ^ code >> 11) % kCodes];
  if (slot.code == code && slot.name == key.name && slot.file == key.file && slot.table == key.table && slot.generation == generation) return slot.id;
  Text name = text_of(key.name), file = text_of(key.file);
  Piece table = table_of(key.table);
  CodeEntry entry{first_line,
                  static_cast<uint16_t>(at.minor),
                  static_cast<uint8_t>(name.kind),
                  static_cast<uint8_t>(file.kind),
                  static_cast<uint32_t>(name.piece.nbytes),
                  static_cast<uint32_t>(file.piece.nbytes),
                  static_cast<uint32_t>(table.nbytes),
                  0};
  Piece pieces[] = {{&entry, sizeof entry}, name.piece, file.piece, table};
  key.id = append(EntryKind::kCode, pieces, 4);
  if (key.id != 0) slot = key;
  return key.id;
}

// A STACK entry of the Python lines of this thread; 0 where there are none, or another thread writes its own.
uint32_t stack_id() {
  if (crashsafe::python_offsets() == nullptr) return 0;
  crashsafe::CheckedReads reads;
  if (!reads.possible() || known_in_use.exchange(true, std::memory_order_acquire)) return 0;
  crashsafe::FrameView frames[kPlaces];
  int count = crashsafe::own_frames(frames, kPlaces);
  StackEntry head{0, 0};
  StackPlace places[kPlaces];
  for (int i = 0; i < count; i++)
    if (uint32_t id = code_id(frames[i].code)) places[head.count++] = {id, static_cast<uint32_t>(frames[i].offset)};
  Piece pieces[] = {{&head, sizeof head}, {places, head.count * sizeof places[0]}};
  uint32_t id = head.count != 0 ? append(EntryKind::kStack, pieces, 2) : 0;
  known_in_use.store(false, std::memory_order_release);
  return id;
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
  entry.stack_id = stack_id();
  char image[512];
  entry.image_nbytes = crashsafe::copy_image_path(send.caller, image, sizeof image, entry.caller_offset);
  Piece pieces[] = {{&entry, sizeof entry}, {image, entry.image_nbytes}};
  send.id = append(EntryKind::kSignalSent, pieces, 2);
  if (send.signal == SIGKILL && send.target == g_box_pid && !send.to_group) trim_at_exit(1);
}

// On our own stack, since the program's may be a small one, with all signals blocked but those of faults, which checked reads need.
void note_send(Send& send) {
  if (!recording() || stopped() || crashsafe::sys_getpid() != g_box_pid) return;
  if (send.to_group && send.target == 0) send.target = getpgrp();
  if (!is_noted(send.signal, !send.to_group && send.target == g_box_pid)) return;
  if (sends.fetch_add(1, std::memory_order_relaxed) >= kMostSends) return;
  uint64_t others = ~crashsafe::our_signals(), before = 0;
  crashsafe::sys_mask(SIG_BLOCK, &others, &before);
  crashsafe::pytracer_on_own_stack(0, &send, nullptr, write_send);
  crashsafe::sys_mask(SIG_SETMASK, &before, nullptr);
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
  known_in_use.store(false, std::memory_order_relaxed);
  generation++;
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
