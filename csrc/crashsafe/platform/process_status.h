// The `status` of a process or of one of its threads in /proc: the lines that we need.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

struct ProcessStatus {
  int error = 0;             ///< errno where it cannot be read; the rest is then as for a line that is not there
  bool debugged = false;     ///< it is ptraced
  uint64_t blocked = ~0ull;  ///< signals that the kernel blocks, by bit
  int filters = -1;          ///< seccomp filters; before Linux 5.9 the mode; -1: not known
};

/// `path`: /proc/self/status, or that of a thread. Opened, read and closed as the dynamic linker does its files.
ProcessStatus read_status(const char* path) noexcept;

/// When a process began, in ticks, and its state; both 0 where it cannot be read. `path`: /proc/<pid>/stat.
struct ProcessStart {
  uint64_t ticks = 0;
  char state = 0;
};
ProcessStart read_start(const char* path) noexcept;

/// The process that a pidfd of ours refers to; 0: not known.
int pid_of_descriptor(int descriptor) noexcept;

}  // namespace pytracer::crashsafe
