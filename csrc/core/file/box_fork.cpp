#include "core/file/box_fork.h"

#include "core/file/box_start.h"
#include "core/file/regions.h"
#include "core/file/run_counters.h"
#include "core/file/run_directory.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/budget.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/early_memory.h"
#include "crashsafe/file/mapping.h"

#include <sys/mman.h>
#include <unistd.h>
#include <cstring>

namespace pytracer::core {
namespace {

using namespace blackbox;
using crashsafe::box_mapping_count;
using crashsafe::box_mappings;
using crashsafe::BoxMapping;
using crashsafe::kCoreRegions;

uint64_t common_facts_end_ = kJournalFirst;

// The child continues where its parent was, and has counted nothing yet.
void renew_header(const FileHeader& inherited, uint64_t journal_used, uint32_t regions) {
  FileHeader header{};
  write_identity(header, inherited.preloaded != 0, inherited.page_bytes);
  if (header.ppid != 0) header.ppid = inherited.pid;  // the one that forked, which may have ended; 0: outside of our pid namespace
  header.journal_used = journal_used;
  header.region_count = regions;
  header.step = inherited.step;
  header.step_source = inherited.step_source;
  header.epoch = inherited.epoch;
  header.python_minor = inherited.python_minor;
  header.python_offsets_ok = inherited.python_offsets_ok;
  *g_box.header = header;
}

// The parent continues writing meanwhile: only what was there when the child first read the end belongs to the child.
size_t inherited_bytes(const RegionEntry& entry, const FileHeader& inherited) {
  switch (static_cast<RegionKind>(entry.kind)) {
    case RegionKind::kJournal: return inherited.journal_used < entry.nbytes ? inherited.journal_used : entry.nbytes;
    case RegionKind::kEpochs:
    case RegionKind::kStorages:
    case RegionKind::kExternalAllocations:
    case RegionKind::kNames:
    case RegionKind::kGuard:  // guarded storages stay guarded in the child
    case RegionKind::kGuarded: return entry.nbytes;
    default: return 0;
  }
}

// Copies what is not zero: most pages of a fresh table are, and a forked worker should start quickly.
void copy_used(char* to, const char* from, size_t nbytes) {
  for (size_t at = 0; at < nbytes; at += kPage) {
    size_t n = nbytes - at < kPage ? nbytes - at : kPage;
    if (memcmp(from + at, kZeroPage, n) != 0) memcpy(to + at, from + at, n);
  }
}

// Copied aside and moved into place, so that pointers into the mapping stay valid.
bool detach(const BoxMapping& mapping, const FileHeader& inherited, const RegionEntry* first, uint32_t count) {
  bool anything = false;
  for (uint32_t i = 0; i < count; i++) anything = anything || inherited_bytes(first[i], inherited) != 0;
  if (!anything) return make_private(mapping.at, mapping.nbytes);
  void* aside = mmap(nullptr, mapping.nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (aside == MAP_FAILED) return false;
  for (uint32_t i = 0; i < count; i++) {
    size_t at = first[i].offset - mapping.offset;
    copy_used(static_cast<char*>(aside) + at, mapping.at + at, inherited_bytes(first[i], inherited));
  }
  if (mremap(aside, mapping.nbytes, mapping.nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, mapping.at) != MAP_FAILED) return true;
  munmap(aside, mapping.nbytes);
  return false;
}

bool copy_tables(const FileHeader& inherited, uint32_t mappings) {
  RegionEntry entries[kRegionLimit];
  uint32_t count = kCoreRegions + mappings - 1;
  memcpy(entries, region_directory(), count * sizeof(RegionEntry));
  for (uint32_t i = 1; i < mappings; i++)
    if (!detach(box_mappings[i], inherited, entries + kCoreRegions + i - 1, 1)) return false;
  if (!detach(box_mappings[0], inherited, entries, kCoreRegions)) return false;
  memcpy(region_directory(), entries, count * sizeof(RegionEntry));
  renew_header(inherited, inherited.journal_used, count);
  return true;
}

}  // namespace

void note_common_facts() noexcept { common_facts_end_ = g_box.header->journal_used; }

bool leave_box_to_parent(bool& copied) noexcept {
  forget_growth();
  if (run_counters() != nullptr) count_process(*run_counters());
  uint32_t mappings = box_mapping_count.load(std::memory_order_relaxed);
  bool private_already = !crashsafe::has_box();  // copied from us at the fork, by the kernel
  FileHeader inherited = *g_box.header;
  copied = mappings > 1;
  if (copied && private_already) {
    renew_header(inherited, inherited.journal_used, inherited.region_count);
  } else if (copied) {
    if (!copy_tables(inherited, mappings)) {
      crashsafe::count_unrecorded(Unrecorded::kFork);
      return false;
    }
  } else {
    char* core = mappings == 1 ? box_mappings[0].at : nullptr;
    size_t nbytes = box_mappings[0].nbytes;
    crashsafe::begin_early();
    if (core != nullptr) munmap(core, nbytes);
    renew_header(inherited, common_facts_end_, 0);  // they are in the early memory still, also when the parent's journal moved
  }
  crashsafe::forget_box(copied);
  g_box_pid = getpid();  // last: a signal that arrived meanwhile wrote nothing to the parent's black box
  return true;
}

bool empty_box() noexcept {
  uint32_t mappings = box_mapping_count.load(std::memory_order_relaxed);
  bool emptied = mappings > 1;
  FileHeader inherited = *g_box.header;
  for (uint32_t i = 0; i < mappings && emptied; i++) emptied = make_private(box_mappings[i].at, box_mappings[i].nbytes);
  if (emptied) {
    renew_header(inherited, kJournalFirst, 0);
    crashsafe::forget_box(true);
    return true;
  }
  g_box.chunk_count.store(0, std::memory_order_relaxed);
  g_box.name_count.store(0, std::memory_order_relaxed);
  for (auto*& names : g_box.names) names = nullptr;
  for (auto*& heads : g_box.heads) heads = nullptr;
  for (auto*& freed : g_box.freed) freed = nullptr;
  crashsafe::begin_early();
  return false;
}

}  // namespace pytracer::core
