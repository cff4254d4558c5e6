// The process that makes a request: identified by the kernel, and a process of the job.
#pragma once
#include <sys/types.h>
#include <cstddef>
#include <cstdint>

namespace pytracer::helper {

/// A process that has connected. `proc` is its directory in /proc: it belongs to this process alone and answers nothing once it
/// has been reaped, so that a pid used again is never taken for it.
struct Caller {
  int connection = -1;
  int proc = -1;
  pid_t pid = 0;  ///< in our pid namespace
  int tid = 0;    ///< the requesting thread, in the caller's
};

/// The pid of the connected process, for counting; 0: another user, or outside of our pid namespace.
pid_t pid_of_peer(int connection) noexcept;

/// Identifies the caller and its thread. 0, or the errno to answer: the sender of the request is not the process that
/// connected, runs as another user, or does not descend from `launcher`.
int identify(int connection, pid_t launcher, Caller& caller) noexcept;

/// Reads a file of /proc below `directory`; `out` ends with a zero byte. Returns its bytes, 0 when it cannot be read.
size_t read_file(int directory, const char* path, char* out, size_t size) noexcept;

}  // namespace pytracer::helper
