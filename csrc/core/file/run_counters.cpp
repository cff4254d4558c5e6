#include "core/file/run_counters.h"

#include "crashsafe/file/identity.h"
#include "crashsafe/file/mapping.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/text/bounded_text.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <climits>
#include <cstdio>
#include <cstring>

namespace pytracer::core {
namespace {

constexpr size_t kNameBytes = 128;

// Written aside and linked into place, so that the name never refers to an incomplete file. Preallocated, since it is mapped.
void make_counters(int run, const char* name) {
  char aside[kNameBytes + 16];
  snprintf(aside, sizeof aside, ".%s.%d", name, getpid());
  int fd = openat(run, aside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return;
  crashsafe::Failure ignored;
  if (crashsafe::preallocate(fd, 0, sizeof(RunCounters), ignored) && pwrite(fd, kCountersMagic, sizeof kCountersMagic, 0) == sizeof kCountersMagic)
    linkat(run, aside, run, name, 0);
  unlinkat(run, aside, 0);
  close(fd);
}

RunCounters* map_counters(int run, const char* name) {
  int fd = openat(run, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return nullptr;
  struct stat file{};
  bool right = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size == sizeof(RunCounters) && crashsafe::is_ours_alone(file, true);
  void* at = right ? mmap(nullptr, sizeof(RunCounters), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (at == MAP_FAILED) return nullptr;
  if (memcmp(at, kCountersMagic, sizeof kCountersMagic) == 0) return static_cast<RunCounters*>(at);
  munmap(at, sizeof(RunCounters));
  return nullptr;
}

}  // namespace

RunCounters* find_run_counters(const char* directory, const char* host) noexcept {
  char path[PATH_MAX + kNameBytes];
  crashsafe::BoundedText(path, sizeof path).add(directory).add("/").add(kCountersPrefix).add(host);
  return map_counters(AT_FDCWD, path);
}

RunCounters* open_run_counters(int run, const char* host) noexcept {
  char name[kNameBytes];
  snprintf(name, sizeof name, "%s%.64s", kCountersPrefix, host);
  RunCounters* counters = map_counters(run, name);
  if (counters != nullptr) return counters;
  make_counters(run, name);
  return map_counters(run, name);
}

uint32_t count_process(RunCounters& counters) noexcept {
  uint32_t before = counters.processes.fetch_add(1, std::memory_order_relaxed);
  SeenProcess& seen = counters.seen[before % kSeenProcesses];
  seen.ppid = getppid();
  seen.started_mono_ns = crashsafe::now_ns();
  prctl(PR_GET_NAME, seen.name);
  std::atomic_ref(seen.pid).store(getpid(), std::memory_order_release);
  return before;
}

}  // namespace pytracer::core
