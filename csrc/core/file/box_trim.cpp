#include "core/file/box_trim.h"

#include "core/file/opened.h"
#include "core/file/regions.h"
#include "core/file/run_directory.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/early_memory.h"
#include "crashsafe/file/mapping.h"

#include <fcntl.h>
#include <cstring>

namespace pytracer::core {
namespace {

using namespace blackbox;

bool trims_when_done_ = false;

// What becomes of a region.
enum class Trim {
  kNothing,
  kUnusedEnd,    ///< the journal, behind what was written
  kUnusedPages,  ///< what a reader wants to know of a process that exited with status 0
  kForCrash,     ///< all, but it stays mapped: the process may crash after all, and then its blocks are allocated again
  kTable,        ///< tables of live and freed storages
};

Trim trim_of(RegionKind kind) {
  switch (kind) {
    case RegionKind::kJournal: return Trim::kUnusedEnd;
    case RegionKind::kThreads:
    case RegionKind::kRecords:
    case RegionKind::kCollectives: return Trim::kUnusedPages;
    case RegionKind::kEpochs:
    case RegionKind::kFreedStorages:
    case RegionKind::kStorages:
    case RegionKind::kExternalAllocations:
    case RegionKind::kScopedTensors:
    case RegionKind::kNames: return Trim::kTable;
    default:
      for (const auto& region : kCrashRegions)
        if (region.kind == kind) return Trim::kForCrash;
      return Trim::kNothing;
  }
}

// Parts of the file that are released, adjacent ones in one call.
struct Holes {
  int fd;
  size_t from = 0, to = 0, all = 0;

  void add(size_t offset, size_t nbytes) {
    if (offset != to) {
      punch();
      from = offset;
    }
    to = offset + nbytes;
  }
  void add_unused(const char* at, size_t offset, size_t nbytes) {
    for (size_t i = 0; i < nbytes; i += kPage)
      if (memcmp(at + i, kZeroPage, kPage) == 0) add(offset + i, kPage);
  }
  void punch() {
    bool given = from < to && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from), static_cast<off_t>(to - from)) == 0;
    if (given) all += to - from;
    from = to;
  }
};

}  // namespace

void trim_when_done() noexcept { trims_when_done_ = true; }

bool has_recorded() noexcept {
  return crashsafe::has_box() && (g_box.tier_count.load() != 0 || g_box.external.load() != nullptr || g_box.chunk_count.load() != 0);
}

void trim_at_exit(int code) noexcept {
  bool recorded = has_recorded();
  auto crash = static_cast<CrashState>(g_box.crash.data->state);
  bool stopped = crash == CrashState::kExit && !recorded;  // stacks, and nothing else
  if (!crashsafe::has_box() || (crash != CrashState::kNone && !stopped)) return;
  if (recorded && (!trims_when_done_ || code != 0)) return;
  Opened fd(open_own_box());
  if (fd < 0) return;
  FileHeader& header = *g_box.header;
  std::atomic_ref(header.trimmed).store(1, std::memory_order_release);  // first: zeros are never taken for "there was nothing"
  Holes holes{fd};
  uint32_t count = crashsafe::kCoreRegions + crashsafe::box_mapping_count.load(std::memory_order_acquire) - 1;
  for (uint32_t i = 0; i < count; i++) {
    const RegionEntry& entry = region_directory()[i];
    size_t nbytes = round_up_to_page(entry.nbytes);
    switch (trim_of(static_cast<RegionKind>(entry.kind))) {
      case Trim::kUnusedEnd: {
        size_t keep = round_up_to_page(header.journal_used);
        if (keep < nbytes) holes.add(entry.offset + keep, nbytes - keep);
        break;
      }
      case Trim::kUnusedPages: holes.add_unused(region_at(i), entry.offset, nbytes); break;
      case Trim::kForCrash:
        if (stopped)
          holes.add_unused(region_at(i), entry.offset, nbytes);
        else
          holes.add(entry.offset, nbytes);
        break;
      case Trim::kTable:
        // Other threads go on writing into a table: into memory of their own from now on, because a store into a hole needs a
        // block, and on a full disk there is none.
        if (make_private(region_at(i), nbytes)) holes.add(entry.offset, nbytes);
        break;
      case Trim::kNothing: break;
    }
  }
  holes.punch();
  if (RunCounters* counters = run_counters()) counters->box_bytes.fetch_sub(holes.all, std::memory_order_relaxed);
}

}  // namespace pytracer::core
