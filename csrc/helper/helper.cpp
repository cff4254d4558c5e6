// pytracer's helper: waits beside a run until one of its processes dies, stops that process's other threads by ptrace and
// sends it their registers; the dying process walks their stacks, since only it has them in reach. Started by
// `pytracer run` before the job, so that no process of the job is its parent.
//
//   _helper DIRECTORY      the run directory; listens at DIRECTORY/helper.sock, closes stdout and stderr then, ends with its parent
//
// It may have rights that a process of the job does not have, so it trusts nothing that the job writes: the kernel identifies the caller
// (caller.cpp), only descendants of the parent with the same user are served, only the caller's own threads are stopped, and what was
// read is sent to it alone. No file of the run is opened.
//
// Each request is served by a forked child: a request that goes wrong cannot stop the next one, and when the child ends, for
// whatever reason, the kernel lets the threads continue.
#include "crashsafe/threads/helper_protocol.h"
#include "helper/caller.h"
#include "helper/stop_threads.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace {

using namespace pytracer;

constexpr unsigned kRequestSeconds = 3;  // a request that hangs is ended by the kernel, and its threads continue
constexpr int kWaiting = 4096;           // callers in the queue; the kernel allows less
constexpr timeval kTalk{0, 500'000};     // for each message of a caller

/// Requests that are being served. A process has one at a time, so that a flood from one process does not block the others.
struct Serving {
  pid_t child;
  pid_t caller;
};
Serving serving[64];

int fail(const char* what) {
  fprintf(stderr, "pytracer: the helper cannot start: %s: %s\n", what, strerror(errno));
  return 1;
}

// By a relative name: an address has room for 107 bytes, a path may be longer.
int listen_in(const char* directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, kHelperSocketName, strlen(kHelperSocketName));
  if (chdir(directory) != 0) return -1;
  unlink(kHelperSocketName);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  umask(0177);
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(fd, kWaiting) != 0) return -1;
  return chdir("/") == 0 ? fd : -1;
}

void on_child(int) {}  // poll() returns, and the child is reaped

Serving* free_place() {
  for (Serving& one : serving)
    if (one.child == 0) return &one;
  return nullptr;
}

bool is_being_served(pid_t caller) {
  for (const Serving& one : serving)
    if (one.child != 0 && one.caller == caller) return true;
  return false;
}

void reap() {
  for (pid_t ended; (ended = waitpid(-1, nullptr, WNOHANG)) > 0;)
    for (Serving& one : serving)
      if (one.child == ended) one = {};
}

[[noreturn]] void serve(int connection, pid_t launcher) {
  signal(SIGCHLD, SIG_DFL);
  alarm(kRequestSeconds);
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &kTalk, sizeof kTalk);
  setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &kTalk, sizeof kTalk);
  helper::Caller caller;
  if (int error = helper::identify(connection, launcher, caller))
    helper::refuse(connection, error);
  else
    helper::stop_threads(caller);
  _exit(0);
}

// A connection that is closed at once means that the process must continue without the helper.
void take(int listening, Serving& place, pid_t launcher) {
  int connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection < 0) return;
  pid_t caller = helper::pid_of_peer(connection);
  if (caller > 0 && !is_being_served(caller)) {
    pid_t child = fork();
    if (child == 0) {
      close(listening);
      serve(connection, launcher);
    }
    if (child > 0) place = {child, caller};
  }
  close(connection);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fputs("usage: _helper DIRECTORY (started by `pytracer run`)\n", stderr);
    return 2;
  }
  pid_t parent = getppid();
  setsid();  // Ctrl-C and signals to the job's process group must not reach the helper
  prctl(PR_SET_NAME, "pytracer-helper");
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) return 0;
  struct sigaction on_end{};
  on_end.sa_handler = on_child;
  sigaction(SIGCHLD, &on_end, nullptr);
  int listening = listen_in(argv[1]);
  if (listening < 0) return fail(argv[1]);
  int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);  // ends the pipe that the launcher reads: we listen
  dup2(nowhere, STDERR_FILENO);
  for (;;) {
    reap();
    Serving* place = free_place();
    pollfd source{place != nullptr ? listening : -1, POLLIN, 0};
    // A child that ends between reap() and poll() frees its place a moment later; without children poll() need not time out.
    bool any = false;
    for (const Serving& one : serving) any |= one.child != 0;
    if (poll(&source, 1, any ? 20 : -1) == 1) take(listening, *place, parent);
  }
}
