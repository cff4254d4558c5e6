#include "crashsafe/threads/helper_call.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/platform/open_file.h"
#include "crashsafe/threads/helper_protocol.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <atomic>
#include <cstddef>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint64_t kStopNs = 600'000'000;  // the helper gives up before (stop_threads.cpp)
constexpr uint64_t kReleaseNs = 200'000'000;

const char* run_directory = nullptr;
int connection = -1;  // of the one thread that reports

void set_state(HelperState state) { g_box.crash.data->helper_state = static_cast<uint32_t>(state); }

bool refuse(int error) {
  g_box.crash.data->helper_error = error;
  set_state(HelperState::kRefused);
  return false;
}

// Until something can be read, or `until`.
bool wait_for_bytes(uint64_t until) {
  for (uint64_t now = now_ns(); now < until; now = now_ns()) {
    pollfd source{connection, POLLIN, 0};
    uint64_t rest = until - now;
    timespec most{static_cast<time_t>(rest / 1'000'000'000), static_cast<long>(rest % 1'000'000'000)};
    if (syscall(SYS_ppoll, &source, 1, &most, nullptr, sizeof(uint64_t)) == 1) return true;
  }
  return false;
}

// One message of exactly that size. 0, or an errno.
int receive(void* to, size_t nbytes, uint64_t until) {
  while (wait_for_bytes(until)) {
    long n = syscall(SYS_recvfrom, connection, to, nbytes, MSG_DONTWAIT | MSG_TRUNC, nullptr, nullptr);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) return errno;
    return static_cast<size_t>(n) == nbytes ? 0 : ECONNRESET;
  }
  return ETIMEDOUT;
}

// A full queue is no reason to give up: it may empty in time.
int connect_to(const sockaddr_un& address, uint64_t until) {
  while (syscall(SYS_connect, connection, &address, sizeof address) != 0) {
    if ((errno != EAGAIN && errno != EINTR) || now_ns() > until) return errno;
    timespec t{0, 2'000'000};
    syscall(SYS_nanosleep, &t, nullptr);
  }
  return 0;
}

// "<first><digits of number>/helper.sock", where `first` leaves room for them. No digits for a negative number.
sockaddr_un address_below(const char* first, int number) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t used = strlen(first);
  memcpy(address.sun_path, first, used);
  char digits[12];
  size_t at = sizeof digits;
  for (int rest = number; rest >= 0; rest = rest < 10 ? -1 : rest / 10) digits[--at] = static_cast<char>('0' + rest % 10);
  memcpy(address.sun_path + used, digits + at, sizeof digits - at);
  used += sizeof digits - at;
  address.sun_path[used] = '/';
  memcpy(address.sun_path + used + 1, kHelperSocketName, strlen(kHelperSocketName));
  return address;
}

// An address has room for 107 bytes: a directory with a longer path is entered through a descriptor.
int connect_below(const char* directory, uint64_t until) {
  if (strlen(directory) + 1 + strlen(kHelperSocketName) < sizeof sockaddr_un::sun_path) return connect_to(address_below(directory, -1), until);
  OpenFile entered(directory, O_PATH | O_DIRECTORY);
  if (!entered.opened()) return errno;
  return connect_to(address_below("/proc/self/fd/", entered.descriptor()), until);
}

// Only a helper of our own user may trace us.
int allow_tracing() {
  ucred listener{};
  unsigned nbytes = sizeof listener;
  if (syscall(SYS_getsockopt, connection, SOL_SOCKET, SO_PEERCRED, &listener, &nbytes) != 0) return errno;
  if (listener.uid != static_cast<uid_t>(syscall(SYS_geteuid))) return EPERM;
  // Yama lets a sibling trace us only after this call; without Yama the call is refused. A pid namespace of our own hides its pid.
  if (listener.pid > 0) prctl(PR_SET_PTRACER, listener.pid, 0, 0, 0);
  return 0;
}

int ask(uint64_t until) {
  HelperHello hello{};
  int error = allow_tracing();
  if (error == 0) error = receive(&hello, sizeof hello, until);
  if (error != 0) return error;
  if (hello.magic != kHelperMagic) return EPROTO;
  HelperRequest request{kHelperMagic, hello.number, sys_gettid(), 0};
  long sent = syscall(SYS_sendto, connection, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT, nullptr, 0);
  return sent == static_cast<long>(sizeof request) ? 0 : errno;
}

int take_threads(uint64_t until) {
  HelperAnswer answer{};
  int error = receive(&answer, sizeof answer, until);
  if (error != 0) return error;
  if (answer.magic != kHelperMagic || answer.count > kHelperThreads || answer.count > g_box.thread_stacks.items) return EPROTO;
  if (answer.error != 0) return answer.error;
  for (uint32_t i = 0; i < answer.count; i++) {
    HelperThread thread{};
    if ((error = receive(&thread, sizeof thread, until)) != 0) return error;
    ThreadStack& stack = g_box.thread_stacks.data[i];
    memset(static_cast<void*>(&stack), 0, sizeof stack);
    stack.tid = thread.tid;
    stack.syscall = thread.syscall;
    stack.stopped = thread.stopped;
    stack.pthread = thread.pthread;
    memcpy(stack.name, thread.name, sizeof stack.name - 1);
    static_assert(sizeof stack.registers == sizeof thread.registers);
    memcpy(stack.registers, thread.registers, sizeof stack.registers);
  }
  g_box.crash.data->threads_total = answer.total;
  g_box.crash.data->thread_stack_count = answer.count;
  return 0;
}

// The end of our sending side, not of the connection: a child that another thread has forked meanwhile holds a copy of it.
void let_go(uint64_t until) {
  if (connection < 0) return;
  syscall(SYS_shutdown, connection, SHUT_WR);
  char unread[64];
  while (wait_for_bytes(until)) {
    long n = syscall(SYS_recvfrom, connection, unread, sizeof unread, MSG_DONTWAIT, nullptr, nullptr);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
  }
  syscall(SYS_close, connection);
  connection = -1;
}

}  // namespace

void set_helper_directory(const char* directory) noexcept { run_directory = directory; }

bool helper_stops_threads() noexcept {
  if (run_directory == nullptr) return false;
  uint64_t until = now_ns() + kStopNs;
  connection = open_with_room([] { return syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (connection < 0) return refuse(-connection);
  int error = connect_below(run_directory, until);
  if (error != 0) {
    syscall(SYS_close, connection);
    connection = -1;
    return error == ENOENT ? false : refuse(error);  // without a launcher there is no such file
  }
  set_state(HelperState::kAsked);
  error = ask(until);
  if (error == 0) error = take_threads(until);
  if (error == 0) {
    set_state(HelperState::kStopped);
    return true;
  }
  let_go(now_ns() + kReleaseNs);  // too late or refused: threads that it may have stopped continue
  return refuse(error);
}

void hold_until_gone() noexcept {
  set_state(HelperState::kHold);
  char hold = 1;
  syscall(SYS_sendto, connection, &hold, sizeof hold, MSG_NOSIGNAL | MSG_DONTWAIT, nullptr, 0);
}

void release_helper() noexcept {
  set_state(HelperState::kRelease);
  let_go(now_ns() + kReleaseNs);
  set_state(HelperState::kReleased);
}

}  // namespace pytracer::crashsafe
