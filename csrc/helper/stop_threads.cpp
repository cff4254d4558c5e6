#include "helper/stop_threads.h"

#include "crashsafe/threads/helper_protocol.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace pytracer::helper {
namespace {

constexpr uint64_t kStopNs = 400'000'000;
constexpr int kReleaseMs = 2000;
constexpr unsigned kHoldSeconds = 10;

enum class Hold { kNone, kSeized, kStopped };

/// A thread of the caller. `tid` is its number in our pid namespace, `thread.tid` in the caller's.
struct Held {
  HelperThread thread;
  pid_t tid;
  Hold hold;
};
Held held[kHelperThreads];  // one request per process
uint32_t count = 0, total = 0;

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}

#if defined(__x86_64__)
// From the kernel's order to that of a ucontext, as in CrashHeader.registers.
bool read_registers(pid_t tid, HelperThread& thread) {
  user_regs_struct r{};
  iovec part{&r, sizeof r};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &part) != 0 || part.iov_len != sizeof r) return false;
  uint64_t ordered[] = {r.r8,  r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi,
                        r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags};
  memcpy(thread.registers, ordered, sizeof ordered);
  thread.pthread = r.fs_base;
  // In a system call, orig_rax is its number and rax one of the answers of an interrupted one (linux/errno.h, 512 to 516), or -EINTR.
  auto call = static_cast<int64_t>(r.orig_rax), answer = static_cast<int64_t>(r.rax);
  thread.syscall = call >= 0 && answer < 0 ? static_cast<int32_t>(call) : -1;
  return true;
}
#else
bool read_registers(pid_t tid, HelperThread& thread) {
  user_regs_struct r{};
  uint64_t tls = 0;
  iovec part{&r, sizeof r}, tls_part{&tls, sizeof tls};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &part) != 0 || part.iov_len != sizeof r) return false;
  memcpy(thread.registers, r.regs, sizeof r.regs);
  thread.registers[31] = r.sp;
  thread.registers[32] = r.pc;
  thread.registers[33] = r.pstate;
  if (ptrace(PTRACE_GETREGSET, tid, NT_ARM_TLS, &tls_part) == 0) thread.pthread = tls;
  // The kernel has moved the program counter back onto the call that it interrupted, whose number is in x8 still.
  constexpr uint32_t kSvc = 0xd4000001;
  errno = 0;
  long word = ptrace(PTRACE_PEEKTEXT, tid, r.pc & ~7ull, nullptr);
  uint32_t instruction = static_cast<uint32_t>(static_cast<uint64_t>(word) >> (r.pc % 8 * 8));
  thread.syscall = errno == 0 && r.pc % 4 == 0 && instruction == kSvc && r.regs[8] < 1024 ? static_cast<int32_t>(r.regs[8]) : -1;
  return true;
}
#endif

void read_name(int proc, pid_t tid, char (&name)[16]) {
  char path[48], text[64];
  snprintf(path, sizeof path, "task/%d/comm", tid);
  size_t n = read_file(proc, path, text, sizeof text);
  while (n > 0 && text[n - 1] == '\n') n--;
  if (n >= sizeof name) n = sizeof name - 1;
  memcpy(name, text, n);
  name[n] = 0;
}

// The number that gettid() returns in the thread: the last one of NSpid, where pid namespaces are nested. 0: it has ended.
int number_inside(int proc, pid_t tid) {
  char path[48], text[4096];
  snprintf(path, sizeof path, "task/%d/status", tid);
  read_file(proc, path, text, sizeof text);
  const char* line = strstr(text, "\nNSpid:");
  if (line == nullptr) return tid;  // before Linux 4.1
  int number = 0;
  for (const char* at = line + 7; *at != 0 && *at != '\n';) {
    char* end = nullptr;
    number = static_cast<int>(strtol(at, &end, 10));
    if (end == at) break;
    at = end;
  }
  return number;
}

// True when the caller's own thread is among them, as it must be: else all of its threads would be stopped.
bool list(const Caller& caller) {
  int descriptor = openat(caller.proc, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* tasks = descriptor >= 0 ? fdopendir(descriptor) : nullptr;
  if (tasks == nullptr) return false;
  // A process of our own namespace has the same numbers inside: nothing to read, for what may be thousands of threads.
  bool nested = number_inside(caller.proc, caller.pid) != caller.pid;
  bool found = false;
  while (dirent* entry = readdir(tasks)) {
    pid_t tid = atoi(entry->d_name);
    if (tid <= 0) continue;
    int inside = nested ? number_inside(caller.proc, tid) : tid;
    if (inside == caller.tid) {
      found = true;
      continue;
    }
    total++;
    if (count >= kHelperThreads || inside == 0) continue;
    Held& one = held[count++];
    one.tid = tid;
    one.thread.tid = inside;
    one.thread.syscall = -1;
    read_name(caller.proc, tid, one.thread.name);
  }
  closedir(tasks);
  return found;
}

// The id of a seized thread cannot be reused: only now it is certain which process it belongs to.
bool is_of(const Caller& caller, pid_t tid) {
  char path[48];
  snprintf(path, sizeof path, "task/%d", tid);
  return faccessat(caller.proc, path, F_OK, 0) == 0;
}

// 0, or why tracing is forbidden. A thread that has ended is refused with EPERM, too: only when none can be seized, it is for
// all of them.
int seize_all(const Caller& caller) {
  uint32_t seized = 0;
  int error = 0;
  for (uint32_t i = 0; i < count; i++) {
    if (ptrace(PTRACE_SEIZE, held[i].tid, nullptr, nullptr) != 0) {
      if (errno != ESRCH) error = errno;
      continue;
    }
    // A thread of another process is not stopped yet, and cannot be released before it is: our end, soon, releases it.
    if (!is_of(caller, held[i].tid)) continue;
    ptrace(PTRACE_INTERRUPT, held[i].tid, nullptr, nullptr);
    held[i].hold = Hold::kSeized;
    seized++;
  }
  return seized > 0 ? 0 : error;
}

void wait_for_stops() {
  uint64_t start = now_ns();
  for (uint32_t i = 0; i < count; i++) {
    Held& one = held[i];
    while (one.hold == Hold::kSeized) {
      int status = 0;
      int got = waitpid(one.tid, &status, __WALL | WNOHANG);
      if (got == one.tid && WIFSTOPPED(status)) {
        one.hold = Hold::kStopped;
        one.thread.stopped = read_registers(one.tid, one.thread) ? 1 : 0;
      } else if (got != 0 || now_ns() - start > kStopNs) {
        one.hold = Hold::kNone;  // it ended, or sleeps where no signal reaches it
      } else {
        timespec t{0, 100'000};
        nanosleep(&t, nullptr);
      }
    }
  }
}

// While it was stopped it may have executed a set-uid program: what was read then may be more than the caller itself may see.
bool is_still_ours(const Caller& caller) {
  struct stat directory{};
  return fstat(caller.proc, &directory) == 0 && directory.st_uid == geteuid();
}

bool send_threads(int connection) {
  HelperAnswer answer{kHelperMagic, 0, total, count, 0};
  if (send(connection, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer) return false;
  for (uint32_t i = 0; i < count; i++)
    if (send(connection, &held[i].thread, sizeof held[i].thread, MSG_NOSIGNAL) != sizeof held[i].thread) return false;
  return true;
}

// Waits for the caller's decision: true when its threads are to stay stopped until it is gone.
bool is_to_be_held(int connection) {
  pollfd source{connection, POLLIN, 0};
  char wish = 0;
  return poll(&source, 1, kReleaseMs) == 1 && recv(connection, &wish, sizeof wish, MSG_DONTWAIT) > 0;
}

// Until the last of them has ended: a dead thread that its tracer has not waited for keeps its process from being reaped.
void reap_all() {
  alarm(kHoldSeconds);
  int status = 0;
  while (waitpid(-1, &status, __WALL) > 0 || errno == EINTR) {
  }
}

}  // namespace

void refuse(int connection, int error) noexcept {
  HelperAnswer answer{kHelperMagic, error, 0, 0, 0};
  send(connection, &answer, sizeof answer, MSG_NOSIGNAL);
}

void stop_threads(const Caller& caller) noexcept {
  if (!list(caller)) return refuse(caller.connection, ESRCH);
  if (int error = seize_all(caller)) return refuse(caller.connection, error);
  wait_for_stops();
  if (!is_still_ours(caller))
    refuse(caller.connection, EPERM);
  else if (send_threads(caller.connection) && is_to_be_held(caller.connection))
    reap_all();
  for (uint32_t i = 0; i < count; i++)
    if (held[i].hold == Hold::kStopped) ptrace(PTRACE_DETACH, held[i].tid, nullptr, nullptr);
}

}  // namespace pytracer::helper
