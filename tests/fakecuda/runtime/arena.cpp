#include "arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>

namespace fakecuda {
namespace {

constexpr size_t kArenaBytes = 128 * kGiB;  // of address space: torch reserves more than a device has for expandable segments

struct Arena {
  char* device = nullptr;  // PROT_NONE: a host access faults, with the device address as its fault address
  char* shadow = nullptr;
  int fd = -1;
  size_t used = 0;
  std::map<size_t, size_t> holes{};  // offset -> bytes
};

void open_arena(Arena& arena) {
  arena.fd = static_cast<int>(syscall(SYS_memfd_create, "fakecuda", 0u));
  if (arena.fd < 0 || ftruncate(arena.fd, kArenaBytes) != 0) {
    perror("fakecuda: memfd");
    abort();
  }
  void* device = mmap(nullptr, kArenaBytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, arena.fd, 0);
  void* shadow = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena.fd, 0);
  if (device == MAP_FAILED || shadow == MAP_FAILED) {
    perror("fakecuda: mmap");
    abort();
  }
  madvise(shadow, kArenaBytes, MADV_DONTDUMP);
  arena.device = static_cast<char*>(device);
  arena.shadow = static_cast<char*>(shadow);
  size_t skew = (kGranule - (reinterpret_cast<uintptr_t>(device) & (kGranule - 1))) & (kGranule - 1);
  arena.holes[skew] = kArenaBytes - skew - kGranule;
}

std::vector<Arena>& arenas() {
  static auto* all = new std::vector<Arena>(static_cast<size_t>(settings().devices));
  return *all;
}

Arena& arena_of(int device) {
  Arena& arena = arenas()[static_cast<size_t>(device)];
  if (arena.device == nullptr) open_arena(arena);
  return arena;
}

}  // namespace

size_t in_granules(size_t nbytes) { return ((nbytes != 0 ? nbytes : 1) + kGranule - 1) / kGranule * kGranule; }

void* reserve(int device, size_t nbytes) {
  Arena& arena = arena_of(device);
  size_t wanted = in_granules(nbytes);
  for (auto hole = arena.holes.begin(); hole != arena.holes.end(); ++hole) {
    auto [offset, size] = *hole;
    if (size < wanted) continue;
    arena.holes.erase(hole);
    if (size > wanted) arena.holes[offset + wanted] = size - wanted;
    return arena.device + offset;
  }
  return nullptr;
}

void release(void* addr, size_t nbytes) {
  Arena& arena = arena_of(device_of(addr));
  discard(addr, nbytes);
  size_t size = in_granules(nbytes), offset = static_cast<size_t>(static_cast<char*>(addr) - arena.device);
  auto next = arena.holes.lower_bound(offset);
  if (next != arena.holes.end() && offset + size == next->first) {
    size += next->second;
    next = arena.holes.erase(next);
  }
  if (next != arena.holes.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  arena.holes[offset] = size;
}

void discard(void* addr, size_t nbytes) {
  Arena& arena = arena_of(device_of(addr));
  fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<char*>(addr) - arena.device, static_cast<off_t>(in_granules(nbytes)));
}

int device_of(const void* addr) {
  auto at = static_cast<const char*>(addr);
  for (int i = 0; i < settings().devices; i++) {
    const Arena& arena = arenas()[static_cast<size_t>(i)];
    if (arena.device != nullptr && at >= arena.device && at < arena.device + kArenaBytes) return i;
  }
  return -1;
}

void* accessible(const void* addr) {
  int device = device_of(addr);
  if (device < 0) return const_cast<void*>(addr);
  const Arena& arena = arenas()[static_cast<size_t>(device)];
  return arena.shadow + (static_cast<const char*>(addr) - arena.device);
}

size_t& used_bytes(int device) { return arena_of(device).used; }

}  // namespace fakecuda

/// For tests: a device address where the host may read it.
FAKECUDA_API void* fakecuda_host(const void* addr) {
  fakecuda::Lock lock;
  return fakecuda::accessible(addr);
}
