// stat() and its like, for wheels: symbols of libc since glibc 2.33 only. The kernel's structure is glibc's on 64-bit machines.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PYTRACER_HIDDEN extern "C" __attribute__((visibility("hidden")))

PYTRACER_HIDDEN int fstat(int fd, struct stat* status) noexcept { return static_cast<int>(syscall(SYS_fstat, fd, status)); }

PYTRACER_HIDDEN int stat(const char* path, struct stat* status) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, status, 0));
}

PYTRACER_HIDDEN int lstat(const char* path, struct stat* status) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW));
}
