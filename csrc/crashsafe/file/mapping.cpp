#include "crashsafe/file/mapping.h"

#include "crashsafe/file/budget.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/sys.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <cerrno>

namespace pytracer::crashsafe {

PYTRACER_LARGE BoxMapping box_mappings[kBoxMappings];
std::atomic<uint32_t> box_mapping_count{0};
uint64_t box_file_bytes = 0;
uint64_t page_bytes = 4096;

namespace {

constexpr char kZeros[4096] = {};

// The program locks all its future memory; written while one thread records, or by any: only true is ever stored.
std::atomic<bool> unlocks{false};

void unlock(const void* at, uint64_t nbytes) {
  if (at != nullptr) syscall(SYS_munlock, at, nbytes);
}

bool lies_in(uint64_t addr, const void* at, uint64_t nbytes) { return addr - reinterpret_cast<uint64_t>(at) < nbytes; }

}  // namespace

bool preallocate(int descriptor, uint64_t from, uint64_t nbytes, Failure& failure) noexcept {
  struct {
    uint64_t soft, hard;
  } limit{};
  if (syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, nullptr, &limit) == 0 && from + nbytes > limit.soft) {  // else SIGXFSZ kills
    failure = {"the black box would be larger than a file may be (ulimit -f)", EFBIG};
    return false;
  }
  long result;
  do result = syscall(SYS_fallocate, descriptor, 0, from, nbytes);
  while (result != 0 && errno == EINTR);
  if (result != 0 && errno == EOPNOTSUPP) {
    result = 0;
    for (uint64_t at = 0; at < nbytes && result == 0; at += sizeof kZeros) {
      uint64_t n = nbytes - at < sizeof kZeros ? nbytes - at : sizeof kZeros;
      if (syscall(SYS_pwrite64, descriptor, kZeros, n, from + at) != static_cast<long>(n)) result = -1;
    }
  }
  if (result != 0) failure = {"cannot preallocate the black box", errno};
  return result == 0;
}

// A fault brings in the page that was touched and no other: the kernel's read-around of 128 KiB would clear pages that are never
// used (measured: 1.3 ms of CPU time for a process that starts and ends, 0.15 without).
void* map_box(int descriptor, void* at, uint64_t from, uint64_t nbytes) noexcept {
  long mapped = syscall(SYS_mmap, at, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), descriptor, from);
  if (mapped == -1) return nullptr;
  syscall(SYS_madvise, mapped, nbytes, MADV_RANDOM);
  if (unlocks.load(std::memory_order_relaxed)) unlock(reinterpret_cast<void*>(mapped), nbytes);
  return reinterpret_cast<void*>(mapped);
}

void unlock_mappings() noexcept {
  unlocks.store(true, std::memory_order_relaxed);
  uint32_t count = box_mapping_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; i++) unlock(box_mappings[i].at, box_mappings[i].nbytes);
}

bool replace_lost_page(uint64_t addr) noexcept {
  bool ours = budget_counters() != nullptr && lies_in(addr, budget_counters(), sizeof(RunCounters));
  uint32_t count = box_mapping_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count && !ours; i++) ours = lies_in(addr, box_mappings[i].at, box_mappings[i].nbytes);
  if (!ours) return false;
  return syscall(SYS_mmap, addr & ~(page_bytes - 1), page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != -1;
}

}  // namespace pytracer::crashsafe
