// A file that is read while the process dies, by system calls alone.
#pragma once
#include "crashsafe/platform/sys.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <cerrno>

namespace pytracer::crashsafe {

/// The descriptor that `open`, a system call, returns, or -errno. Where the program has used up its descriptors, its limit is raised for
/// the time of the call, as far as its hard limit or its privileges allow.
template <class Open>
int open_with_room(Open open) noexcept {
  auto once = [&open]() {
    long opened = open();
    return opened >= 0 ? static_cast<int>(opened) : -errno;
  };
  int descriptor = once();
  if (descriptor != -EMFILE) return descriptor;
  struct Limit {
    uint64_t soft, hard;
  } limit{};
  if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit) != 0) return descriptor;
  Limit more{limit.soft + 65536, limit.hard};
  if (more.soft > more.hard) more.hard = more.soft;
  if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, nullptr) != 0) {
    more = {limit.hard, limit.hard};
    if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, nullptr) != 0) return descriptor;
  }
  descriptor = once();
  syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr);
  return descriptor;
}

/// Opened in the constructor, closed in the destructor.
class OpenFile {
 public:
  explicit OpenFile(const char* path, int flags = O_RDONLY) noexcept { open(path, flags); }
  OpenFile() noexcept = default;
  ~OpenFile() { close(); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  /// `below`: a directory's descriptor; `mode`: of a file that is created.
  bool open(const char* path, int flags, int below = AT_FDCWD, unsigned mode = 0) noexcept {
    close();
    descriptor_ = open_with_room([=] { return syscall(SYS_openat, below, path, flags | O_CLOEXEC, mode); });
    return opened();
  }
  bool opened() const noexcept { return descriptor_ >= 0; }
  int descriptor() const noexcept { return descriptor_; }
  /// The errno of the open; 0 when it is opened.
  int error() const noexcept { return opened() ? 0 : -descriptor_; }
  long read(void* to, size_t nbytes) noexcept { return syscall(SYS_read, descriptor_, to, nbytes); }

 private:
  void close() noexcept {
    if (opened()) syscall(SYS_close, descriptor_);
    descriptor_ = -EBADF;
  }

  int descriptor_ = -EBADF;
};

}  // namespace pytracer::crashsafe
