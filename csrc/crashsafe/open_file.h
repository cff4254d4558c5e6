// A file that is read while the process dies, by system calls alone.
#pragma once
#include "sys.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <cerrno>

namespace pytracer::crashsafe {

/// Opened in the constructor, closed in the destructor. A program that used up its descriptors gets a few more for the
/// time of the open, where its hard limit or its privileges allow: the limit counts at open() only.
class OpenFile {
 public:
  explicit OpenFile(const char* path, int flags = O_RDONLY) noexcept : descriptor_(open_once(path, flags)) {
    if (descriptor_ == -EMFILE) with_more_descriptors(path, flags);
  }
  ~OpenFile() {
    if (opened()) syscall(SYS_close, descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool opened() const noexcept { return descriptor_ >= 0; }
  int descriptor() const noexcept { return descriptor_; }
  long read(void* to, size_t nbytes) noexcept { return syscall(SYS_read, descriptor_, to, nbytes); }

 private:
  static int open_once(const char* path, int flags) noexcept {
    long opened = syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC);
    return opened >= 0 ? static_cast<int>(opened) : -errno;
  }
  void with_more_descriptors(const char* path, int flags) noexcept {
    struct Limit {
      uint64_t soft, hard;
    } limit{};
    if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, nullptr, &limit) != 0) return;
    Limit more{limit.soft + 65536, limit.hard};
    if (more.soft > more.hard) more.hard = more.soft;
    if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, nullptr) != 0) {
      more = {limit.hard, limit.hard};
      if (syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, nullptr) != 0) return;
    }
    descriptor_ = open_once(path, flags);
    syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, &limit, nullptr);
  }

  int descriptor_;
};

}  // namespace pytracer::crashsafe
