#include "core/file/regions.h"

#include "core/file/opened.h"
#include "core/file/run_directory.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/early_memory.h"
#include "crashsafe/file/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <atomic>
#include <ctime>

namespace pytracer::core {
namespace {

using namespace blackbox;
using crashsafe::box_mapping_count;
using crashsafe::box_mappings;
using crashsafe::kCoreRegions;

constexpr int kGrowWaits = 5000;  // of 0.1 ms

std::atomic_flag growing_ = ATOMIC_FLAG_INIT;

}  // namespace

RegionEntry* region_directory() noexcept { return reinterpret_cast<RegionEntry*>(reinterpret_cast<char*>(g_box.header) + sizeof(FileHeader)); }

char* region_at(uint32_t index) noexcept {
  const crashsafe::BoxMapping& mapping = box_mappings[index < kCoreRegions ? 0 : index - kCoreRegions + 1];
  return mapping.at + (region_directory()[index].offset - mapping.offset);
}

int open_own_box() noexcept {
  int fd = open(crashsafe::box_path(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || crashsafe::is_own_box(fd)) return fd;
  close(fd);
  return -1;
}

bool make_private(char* at, size_t nbytes) noexcept {
  return mmap(at, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

void* add_region(RegionKind kind, uint32_t item_bytes, uint64_t items, uint32_t first_thread, uint32_t log2_slots) noexcept {
  if (!crashsafe::ensure_box(crashsafe::Need::kMust)) return nullptr;
  for (int waits = 0; growing_.test_and_set(std::memory_order_acquire); waits++) {
    if (waits == kGrowWaits) return nullptr;
    timespec t{0, 100'000};
    nanosleep(&t, nullptr);
  }
  void* at = nullptr;
  FileHeader& header = *g_box.header;
  size_t nbytes = round_up_to_page(item_bytes * items), offset = crashsafe::box_file_bytes;
  uint32_t mapping = box_mapping_count.load(std::memory_order_relaxed), index = kCoreRegions + mapping - 1;
  if (index < kRegionLimit) {
    Failure failure;
    Opened fd(open_own_box());
    if (fd >= 0 && crashsafe::preallocate(fd, offset, nbytes, failure)) at = crashsafe::map_box(fd, nullptr, offset, nbytes);
  }
  if (at != nullptr) {
    box_mappings[mapping] = {static_cast<char*>(at), offset, nbytes};
    crashsafe::box_file_bytes += nbytes;
    box_mapping_count.store(mapping + 1, std::memory_order_release);
    region_directory()[index] = {static_cast<uint32_t>(kind), item_bytes, offset, item_bytes * items, items, first_thread, log2_slots};
    std::atomic_ref(header.region_count).store(index + 1, std::memory_order_release);
    if (RunCounters* counters = run_counters()) counters->box_bytes.fetch_add(nbytes, std::memory_order_relaxed);
  }
  growing_.clear(std::memory_order_release);
  return at;
}

void forget_growth() noexcept { growing_.clear(std::memory_order_relaxed); }

}  // namespace pytracer::core
