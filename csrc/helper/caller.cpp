#include "helper/caller.h"

#include "crashsafe/threads/helper_protocol.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace pytracer::helper {
namespace {

constexpr int kGenerations = 1000;  // between the launcher and a process of the job

// Field 4 of /proc/PID/stat, whose second one may hold anything. 0: there is no such process.
pid_t parent_in(int directory, const char* path) {
  char text[1024];
  if (read_file(directory, path, text, sizeof text) == 0) return 0;
  const char* at = strrchr(text, ')');
  int parent = 0;
  return at != nullptr && sscanf(at + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

pid_t parent_of(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  return parent_in(AT_FDCWD, path);
}

// Upwards from the caller. The parent of each parent is read while it still is the parent, so its pid was not reused. A process whose
// parent has died is a child of init or of a subreaper, and no longer known to belong to the job.
bool descends(const Caller& caller, pid_t launcher) {
  pid_t self = getppid();  // we are a forked child of the helper
  pid_t child = caller.pid, parent = parent_in(caller.proc, "stat");
  for (int i = 0; i < kGenerations; i++) {
    if (parent == launcher) return true;
    if (parent <= 1 || parent == self) return false;
    pid_t next = parent_of(parent);
    pid_t now = child == caller.pid ? parent_in(caller.proc, "stat") : parent_of(child);
    if (now == parent) {
      child = parent;
      parent = next;
    } else {
      parent = now;
    }
  }
  return false;
}

// The next message, of exactly that size, and the pid and user of the process that sent it. Passed descriptors find no space
// and are closed by the kernel.
bool receive_signed(int connection, void* to, size_t nbytes, ucred& sender) {
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(ucred))];
  iovec part{to, nbytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  ssize_t n = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  if (n != static_cast<ssize_t>(nbytes) || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return false;
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_CREDENTIALS || item->cmsg_len != CMSG_LEN(sizeof sender)) continue;
    memcpy(&sender, CMSG_DATA(item), sizeof sender);
    return true;
  }
  return false;
}

ucred peer_of(int connection) {
  ucred peer{};
  socklen_t nbytes = sizeof peer;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &nbytes) != 0) peer = {};
  return peer;
}

}  // namespace

size_t read_file(int directory, const char* path, char* out, size_t size) noexcept {
  int fd = openat(directory, path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, out, size - 1) : 0;
  if (fd >= 0) close(fd);
  out[n > 0 ? n : 0] = 0;
  return n > 0 ? static_cast<size_t>(n) : 0;
}

pid_t pid_of_peer(int connection) noexcept {
  ucred peer = peer_of(connection);
  return peer.uid == geteuid() ? peer.pid : 0;
}

int identify(int connection, pid_t launcher, Caller& caller) noexcept {
  caller.connection = connection;
  caller.pid = pid_of_peer(connection);
  if (caller.pid <= 0) return EPERM;
  char path[32];
  snprintf(path, sizeof path, "/proc/%d", caller.pid);
  caller.proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (caller.proc < 0) return errno;
  // The process that connected may have died since, and its pid may have been reused. The kernel signs each message with the pid of its
  // sender: a process that knows a number generated after `proc` was opened, and has that pid, is the process of `proc`.
  int on = 1;
  HelperHello hello{kHelperMagic, 0};
  if (setsockopt(connection, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 || getrandom(&hello.number, sizeof hello.number, 0) != sizeof hello.number)
    return errno;
  if (send(connection, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello) return errno;
  HelperRequest request{};
  ucred sender{};
  if (!receive_signed(connection, &request, sizeof request, sender)) return EPROTO;
  if (request.magic != kHelperMagic || request.number != hello.number) return EPROTO;
  if (sender.pid != caller.pid || sender.uid != geteuid()) return EPERM;
  caller.tid = request.tid;
  return descends(caller, launcher) ? 0 : EPERM;
}

}  // namespace pytracer::helper
