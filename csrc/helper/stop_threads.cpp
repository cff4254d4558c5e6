#include "stop_threads.h"

#include "../blackbox/layout.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace pytracer::helper {
namespace {

using namespace blackbox;

constexpr uint32_t kStacks = 256;
constexpr uint64_t kStopNs = 400'000'000, kReleaseNs = 2'000'000'000;

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}

/// The parts of the box that are ours to write.
struct Request {
  int pid = 0;
  CrashHeader* crash = nullptr;
  ThreadStack* stacks = nullptr;
  uint32_t stack_limit = 0;
  char* maps = nullptr;
  uint32_t maps_limit = 0;

  std::atomic_ref<uint32_t> state() const { return std::atomic_ref(crash->helper_state); }
  void wake() const { syscall(SYS_futex, &crash->helper_state, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
  void refuse(int error) const {
    crash->helper_error = error;
    auto asked = static_cast<uint32_t>(HelperState::kAsked);
    state().compare_exchange_strong(asked, static_cast<uint32_t>(HelperState::kRefused), std::memory_order_acq_rel);
    wake();
  }
};

// Field 22 of /proc/PID/stat: a pid of another namespace, or one that was given to another process, does not fit the box.
uint64_t start_ticks(int pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
  if (fd >= 0) close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* at = strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; field++) at = strchr(at + 1, ' ');
  return at != nullptr ? strtoull(at + 1, nullptr, 10) : 0;
}

// A box is a file that its process may damage while it dies: nothing in it is believed without a look at its size.
bool open_request(const char* path, int pid, Request& request) {
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat file{};
  if (fd < 0 || fstat(fd, &file) != 0 || file.st_size < static_cast<off_t>(kHeaderBytes)) return false;
  auto nbytes = static_cast<uint64_t>(file.st_size);
  void* at = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) return false;
  auto* base = static_cast<char*>(at);
  auto* header = reinterpret_cast<FileHeader*>(base);
  if (memcmp(header->magic, kMagic, sizeof kMagic) != 0 || header->major != kMajor || header->header_bytes != kHeaderBytes) return false;
  auto* entries = reinterpret_cast<RegionEntry*>(base + sizeof(FileHeader));
  for (uint32_t i = 0; i < header->region_count && i < kRegionLimit; i++) {
    RegionEntry entry = entries[i];
    if (entry.offset > nbytes || entry.nbytes > nbytes - entry.offset || entry.item_count * entry.item_bytes > entry.nbytes) continue;
    char* content = base + entry.offset;
    if (entry.kind == static_cast<uint32_t>(RegionKind::kCrash) && entry.item_bytes == sizeof(CrashHeader) && entry.item_count == 1)
      request.crash = reinterpret_cast<CrashHeader*>(content);
    if (entry.kind == static_cast<uint32_t>(RegionKind::kThreadStacks) && entry.item_bytes == sizeof(ThreadStack)) {
      request.stacks = reinterpret_cast<ThreadStack*>(content);
      request.stack_limit = entry.item_count < kStacks ? static_cast<uint32_t>(entry.item_count) : kStacks;
    }
    if (entry.kind == static_cast<uint32_t>(RegionKind::kMaps)) {
      request.maps = content;
      request.maps_limit = static_cast<uint32_t>(entry.nbytes);
    }
  }
  request.pid = pid;
  if (request.crash == nullptr) return false;
  if (request.stacks != nullptr && header->pid == pid && header->start_ticks == start_ticks(pid)) return true;
  request.refuse(ESRCH);
  return false;
}

#if defined(__x86_64__)
// From the kernel's order to that of a ucontext, as in CrashHeader.registers.
bool read_registers(int tid, ThreadStack& stack) {
  user_regs_struct r{};
  iovec part{&r, sizeof r};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &part) != 0 || part.iov_len != sizeof r) return false;
  uint64_t ordered[] = {r.r8,  r.r9,  r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi,
                        r.rsi, r.rbp, r.rbx, r.rdx, r.rax, r.rcx, r.rsp, r.rip, r.eflags};
  memcpy(stack.registers, ordered, sizeof ordered);
  stack.pthread = r.fs_base;
  // In a system call, orig_rax is its number and rax one of the answers of an interrupted one (linux/errno.h, 512 to 516), or -EINTR.
  auto call = static_cast<int64_t>(r.orig_rax), answer = static_cast<int64_t>(r.rax);
  stack.syscall = call >= 0 && answer < 0 ? static_cast<int32_t>(call) : -1;
  return true;
}
#else
bool read_registers(int tid, ThreadStack& stack) {
  user_regs_struct r{};
  uint64_t tls = 0;
  iovec part{&r, sizeof r}, tls_part{&tls, sizeof tls};
  if (ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &part) != 0 || part.iov_len != sizeof r) return false;
  memcpy(stack.registers, r.regs, sizeof r.regs);
  stack.registers[31] = r.sp;
  stack.registers[32] = r.pc;
  stack.registers[33] = r.pstate;
  if (ptrace(PTRACE_GETREGSET, tid, NT_ARM_TLS, &tls_part) == 0) stack.pthread = tls;
  stack.syscall = -1;
  return true;
}
#endif

void read_name(int pid, int tid, char (&name)[16]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/comm", pid, tid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, name, sizeof name - 1) : 0;
  if (fd >= 0) close(fd);
  while (n > 0 && name[n - 1] == '\n') n--;
  name[n > 0 ? n : 0] = 0;
}

// Lists and seizes. False when tracing is forbidden; errno tells. A thread that has ended is refused with EPERM, too: only
// when none can be seized, it is for all of them.
bool seize_all(const Request& request) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task", request.pid);
  DIR* tasks = opendir(path);
  if (tasks == nullptr) return false;
  uint32_t total = 0, count = 0, seized = 0;
  int error = 0;
  while (dirent* entry = readdir(tasks)) {
    int tid = atoi(entry->d_name);
    if (tid <= 0 || tid == request.crash->tid) continue;
    total++;
    if (count >= request.stack_limit) continue;
    ThreadStack& stack = request.stacks[count++];
    memset(static_cast<void*>(&stack), 0, sizeof stack);
    stack.tid = tid;
    stack.syscall = -1;
    read_name(request.pid, tid, stack.name);
    if (ptrace(PTRACE_SEIZE, tid, nullptr, nullptr) != 0) {
      if (errno != ESRCH) error = errno;
      continue;
    }
    ptrace(PTRACE_INTERRUPT, tid, nullptr, nullptr);
    seized++;
    stack.stopped = 2;  // seized; 1 once it has stopped
  }
  closedir(tasks);
  request.crash->threads_total = total;
  request.crash->thread_stack_count = count;
  errno = error;
  return seized > 0 || error == 0;
}

void wait_for_stops(const Request& request) {
  uint64_t start = now_ns();
  for (uint32_t i = 0; i < request.crash->thread_stack_count; i++) {
    ThreadStack& stack = request.stacks[i];
    int status = 0;
    while (stack.stopped == 2) {
      int got = waitpid(stack.tid, &status, __WALL | WNOHANG);
      if (got == stack.tid && WIFSTOPPED(status)) {
        stack.stopped = read_registers(stack.tid, stack) ? 1 : 0;
      } else if (got != 0 || now_ns() - start > kStopNs) {
        stack.stopped = 0;  // it ended, or sleeps where no signal reaches it
      } else {
        timespec t{0, 100'000};
        nanosleep(&t, nullptr);
      }
    }
  }
}

// A process without free descriptors cannot read its own map.
void add_missing_map(const Request& request) {
  if (request.maps == nullptr || request.crash->maps_used != 0) return;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/maps", request.pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = 0;
  uint32_t used = 0;
  while (fd >= 0 && used < request.maps_limit && (n = read(fd, request.maps + used, request.maps_limit - used)) > 0) used += static_cast<uint32_t>(n);
  if (fd >= 0) close(fd);
  request.crash->maps_used = used;
}

void detach_all(const Request& request) {
  for (uint32_t i = 0; i < request.crash->thread_stack_count && i < request.stack_limit; i++)
    ptrace(PTRACE_DETACH, request.stacks[i].tid, nullptr, nullptr);
}

}  // namespace

void serve_request(const char* path, int pid) noexcept {
  Request request;
  if (!open_request(path, pid, request)) return;
  auto asked = static_cast<uint32_t>(HelperState::kAsked);
  if (request.state().load(std::memory_order_acquire) != asked) return;
  if (!seize_all(request)) {
    int error = errno;
    detach_all(request);
    request.refuse(error != 0 ? error : ESRCH);
    return;
  }
  wait_for_stops(request);
  add_missing_map(request);
  if (request.state().compare_exchange_strong(asked, static_cast<uint32_t>(HelperState::kStopped), std::memory_order_acq_rel)) request.wake();
  uint64_t start = now_ns();
  for (uint32_t seen; (seen = request.state().load(std::memory_order_acquire)) == static_cast<uint32_t>(HelperState::kStopped);) {
    if (now_ns() - start > kReleaseNs) break;
    timespec slice{0, 50'000'000};
    syscall(SYS_futex, &request.crash->helper_state, FUTEX_WAIT, seen, &slice, nullptr, 0);
  }
  detach_all(request);
  request.state().store(static_cast<uint32_t>(HelperState::kReleased), std::memory_order_release);
  request.wake();
}

}  // namespace pytracer::helper
