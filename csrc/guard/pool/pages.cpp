#include "guard/pool/pages.h"

#include <sys/mman.h>
#include <unistd.h>
#include <cerrno>

namespace pytracer::guard {
namespace {

// linux/mman.h of 6.13; the headers here may be older than the kernel.
constexpr int kGuardInstall = 102, kGuardRemove = 103;
constexpr int kTries = 64;

// The kernel gives up for a moment when faults race with it: EINTR, EAGAIN.
bool advise(char* at, size_t nbytes, int advice) {
  for (int i = 0; i < kTries; i++) {
    if (madvise(at, nbytes, advice) == 0) return true;
    if (errno != EINTR && errno != EAGAIN) return false;
  }
  return false;
}

// Both are advisory. Without the first a core dump walks the whole pool; without the second a touched byte may cost 2 MiB.
// They also make neighbouring mappings alike, so that the kernel can merge them again.
void set_advice(char* at, size_t nbytes, bool huge) {
  madvise(at, nbytes, MADV_DONTDUMP);
  if (!huge) madvise(at, nbytes, MADV_NOHUGEPAGE);
}

}  // namespace

char* reserve(size_t nbytes, bool huge) noexcept {
  void* at = mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  set_advice(static_cast<char*>(at), nbytes, huge);
  return static_cast<char*>(at);
}

bool reserve_at(char* at, size_t nbytes, bool huge) noexcept {
  void* got = mmap(at, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got != at) {  // before Linux 4.17 the flag is unknown, and the address a hint
    munmap(got, nbytes);
    return false;
  }
  set_advice(at, nbytes, huge);
  return true;
}

int try_markers() noexcept {
  auto nbytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* at = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return errno;
  int error = set_markers(static_cast<char*>(at), nbytes) ? 0 : errno;
  munmap(at, nbytes);
  return error;
}

bool open_marked(char* at, size_t nbytes) noexcept {
  if (mprotect(at, nbytes, PROT_READ | PROT_WRITE) != 0) return false;
  madvise(at, nbytes, MADV_DODUMP);  // live storages belong into a core dump
  if (set_markers(at, nbytes)) return true;
  int error = errno;
  seal(at, nbytes, false);
  errno = error;
  return false;
}

bool set_markers(char* at, size_t nbytes) noexcept { return advise(at, nbytes, kGuardInstall); }
bool remove_markers(char* at, size_t nbytes) noexcept { return advise(at, nbytes, kGuardRemove); }

bool unprotect(char* at, size_t nbytes, bool huge) noexcept {
  if (mprotect(at, nbytes, PROT_READ | PROT_WRITE) != 0) return false;
  madvise(at, nbytes, MADV_DODUMP);
  if (huge) madvise(at, nbytes, MADV_HUGEPAGE);  // memory that is always fresh is page faults: 13 times fewer of them (8 MiB)
  return true;
}

// mprotect would keep the pages and, since they differ in their origin, most of the mappings (measured: 32 954 left of
// 65 378). A fresh mapping with the same advice merges with its neighbours.
bool seal(char* at, size_t nbytes, bool huge) noexcept {
  if (mmap(at, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) return false;
  set_advice(at, nbytes, huge);
  return true;
}

void drop(char* at, size_t nbytes) noexcept { madvise(at, nbytes, MADV_DONTNEED); }

}  // namespace pytracer::guard
