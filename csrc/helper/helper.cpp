// pytracer's helper: waits beside a run until one of its processes dies, stops that process's other threads by ptrace and
// puts their registers into its black box; the dying process walks their stacks, since only it has them in reach. Started by
// `pytracer run` before the job, so that no process of the job is its parent.
//
//   _helper DIRECTORY      the run directory; makes DIRECTORY/doorbell, closes stdout and stderr when it listens, ends with its parent
//
// Each request is served by a forked child: a request that goes wrong cannot stop the next one, and when the child ends, for
// whatever reason, the kernel lets the threads go on.
#include "../blackbox/layout.h"
#include "../crashsafe/doorbell.h"
#include "stop_threads.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using namespace pytracer;

constexpr unsigned kRequestSeconds = 3;  // a request that hangs is ended by the kernel, and its threads go on

int fail(const char* what) {
  fprintf(stderr, "pytracer: the helper cannot start: %s: %s\n", what, strerror(errno));
  return 1;
}

Doorbell* make_doorbell(const char* directory) {
  char path[PATH_MAX];
  if (snprintf(path, sizeof path, "%s/%s", directory, kDoorbellName) >= static_cast<int>(sizeof path)) return nullptr;
  unlink(path);
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  // Never sparse: on a full disk a store into a hole would kill the process that rings.
  int error = posix_fallocate(fd, 0, sizeof(Doorbell));
  void* at = error == 0 ? mmap(nullptr, sizeof(Doorbell), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (at == MAP_FAILED) {
    if (error != 0) errno = error;
    unlink(path);
    return nullptr;
  }
  auto* bell = static_cast<Doorbell*>(at);
  bell->helper_pid.store(getpid());
  memcpy(bell->magic, kDoorbellMagic, sizeof bell->magic);
  return bell;
}

// The pid of a request whose box could be read as a path: plain file names only.
bool is_plain_name(const char (&name)[kBoxNameBytes]) {
  return memchr(name, 0, sizeof name) != nullptr && name[0] != 0 && name[0] != '.' && strchr(name, '/') == nullptr;
}

void serve(const char* directory, DoorbellSlot& slot, int pid) {
  char name[kBoxNameBytes], path[PATH_MAX];
  memcpy(name, slot.box, sizeof name);
  slot.pid.store(0, std::memory_order_release);
  if (!is_plain_name(name) || snprintf(path, sizeof path, "%s/boxes/%s", directory, name) >= static_cast<int>(sizeof path)) return;
  if (fork() != 0) return;
  signal(SIGCHLD, SIG_DFL);  // ignored, it would throw the stops of the threads away
  alarm(kRequestSeconds);
  helper::serve_request(path, pid);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fputs("usage: _helper DIRECTORY (started by `pytracer run`)\n", stderr);
    return 2;
  }
  pid_t parent = getppid();
  setsid();  // Ctrl-C and signals to the job's process group are not for us
  prctl(PR_SET_NAME, "pytracer-helper");
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) return 0;
  signal(SIGCHLD, SIG_IGN);
  Doorbell* bell = make_doorbell(argv[1]);
  if (bell == nullptr) return fail(argv[1]);
  int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(nowhere, STDOUT_FILENO);  // ends the pipe that the launcher reads: we listen
  dup2(nowhere, STDERR_FILENO);
  for (;;) {
    uint32_t seen = bell->rings.load(std::memory_order_acquire);
    for (DoorbellSlot& slot : bell->slots) {
      int32_t pid = slot.pid.load(std::memory_order_acquire);
      if (pid > 0) serve(argv[1], slot, pid);
    }
    syscall(SYS_futex, &bell->rings, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  }
}
