#include "guard/pool/arena.h"

#include "guard/pool/pages.h"

#include <sys/mman.h>
#include <sys/resource.h>

namespace pytracer::guard {
namespace {

constexpr size_t kPageTable = 2ull << 20;  // what one page of page tables maps: units that fill it give it back
constexpr size_t kLeast = 256ull << 20;
constexpr size_t kFirst = 32ull << 20;  // whole chunks of chunks.h, and so is each doubling

// Under a limit (ulimit -v) the program's needs come first.
size_t affordable(size_t most, bool& limited) {
  rlimit limit{};
  limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  if (!limited) return most;
  size_t share = limit.rlim_cur / 8, size = kFirst;
  while (size * 2 <= share && size < most) size *= 2;
  return size < most ? size : most;
}

}  // namespace

bool Arena::open(size_t most, size_t unit_bytes, bool large, const Slot* slots) noexcept {
  bool limited = false;
  size_t least = kLeast;
  most = affordable(most, limited);
  if (limited) least = kFirst;
  for (most_bytes_ = most; most_bytes_ >= least && low_ == nullptr; most_bytes_ = low_ == nullptr ? most_bytes_ / 2 : most_bytes_) {
    char* at = reserve(most_bytes_ + kPageTable, large);
    if (at != nullptr) low_ = at + (kPageTable - reinterpret_cast<uintptr_t>(at) % kPageTable);
  }
  if (low_ == nullptr) return false;
  bytes_ = limited ? kFirst : most_bytes_;
  if (bytes_ < most_bytes_) munmap(low_ + bytes_, most_bytes_ - bytes_);  // room to grow, unless another mapping takes it
  unit_ = unit_bytes;
  large_ = large;
  count_ = static_cast<uint32_t>(bytes_ / unit_bytes);
  void* owners = mmap(nullptr, most_count() * sizeof(uint32_t), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (owners == MAP_FAILED) {
    munmap(low_, bytes_);
    low_ = nullptr;
    bytes_ = most_bytes_ = 0;
    return false;
  }
  owner_ = static_cast<uint32_t*>(owners);
  slots_ = slots;
  return true;
}

bool Arena::grow() noexcept {
  if (bytes_ >= most_bytes_) return false;
  if (!reserve_at(low_ + bytes_, bytes_, large_)) {
    most_bytes_ = bytes_;
    return false;
  }
  bytes_ *= 2;
  count_ = static_cast<uint32_t>(bytes_ / unit_);
  return true;
}

void Arena::own(uint32_t first, uint32_t units, uint32_t slot) noexcept {
  for (uint32_t i = 0; i < units; i++) owner_[first + i] = slot + 1;
}

uint32_t Arena::after_occupied(uint32_t at, uint32_t units) const noexcept {
  for (uint32_t i = units; i-- > 0;) {  // from the end: the farthest one in the way saves the most steps
    uint32_t owner = owner_[at + i];
    if (owner == 0) continue;
    const Slot& slot = slots_[owner - 1];
    bool still = slot.occupied && slot.large == large_ && slot.first <= at + i && at + i < slot.first + slot.units;
    if (still) return slot.first + slot.units;
  }
  return 0;
}

}  // namespace pytracer::guard
