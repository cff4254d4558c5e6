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

}  // namespace pytracer::crashsafe
