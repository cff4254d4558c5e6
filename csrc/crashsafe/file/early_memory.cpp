#include "crashsafe/file/early_memory.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/file/mapping.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/large.h"

#include <cstring>

namespace pytracer {
BlackBox g_box;
int g_box_pid = 0;
}  // namespace pytracer

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint64_t kPage = 4096;

// Command line and environment, at most 64 KiB each, and as much of what is not worth a file by itself.
constexpr uint32_t kEarlyJournal = 192 << 10, kEarlyEpochs = 128;

// What every process writes lies together, usually in two pages.
struct alignas(kPage) Early {
  FileHeader header;
  Epoch epochs[kEarlyEpochs];
  CrashHeader crash;
  char journal[kEarlyJournal];
};
PYTRACER_LARGE constinit Early early{};

// Each region begins at a page of whatever kernel runs: a mapping can.
constexpr uint64_t end_of_page(uint64_t nbytes) { return (nbytes + kLargestPage - 1) & ~(kLargestPage - 1); }

struct Plan {
  RegionEntry entries[kCoreRegions] = {};
  uint64_t nbytes = end_of_page(kHeaderBytes);
  constexpr void add(RegionKind kind, uint32_t item_bytes, uint64_t items, uint32_t index) {
    entries[index] = {static_cast<uint32_t>(kind), item_bytes, nbytes, item_bytes * items, items, 0, 0};
    nbytes += end_of_page(item_bytes * items);
  }
  constexpr Plan() {
    add(RegionKind::kJournal, 1, kJournalBytes, 0);
    add(RegionKind::kEpochs, sizeof(Epoch), kEpochSlots, 1);
    uint32_t index = 2;
    for (const auto& region : kCrashRegions) add(region.kind, region.item_bytes, region.items, index++);
  }
};
constexpr Plan kPlan;
static_assert(sizeof(FileHeader) + kRegionLimit * sizeof(RegionEntry) <= kHeaderBytes);

template <class T>
void show(Span<T>& span, char* base, RegionKind kind) {
  for (const RegionEntry& entry : kPlan.entries)
    if (entry.kind == static_cast<uint32_t>(kind))
      span = base != nullptr ? Span<T>{reinterpret_cast<T*>(base + entry.offset), static_cast<uint32_t>(entry.nbytes / sizeof(T))} : Span<T>{};
}

// The crash regions first: a handler that writes a report sees them all. `base` null: none.
void show_crash_regions(char* base) {
  show(g_box.native_frames, base, RegionKind::kNativeFrames);
  show(g_box.python_threads, base, RegionKind::kPythonThreads);
  show(g_box.python_frames, base, RegionKind::kPythonFrames);
  show(g_box.images, base, RegionKind::kImages);
  show(g_box.hits, base, RegionKind::kStorageHits);
  show(g_box.also_crashed, base, RegionKind::kAlsoCrashed);
  show(g_box.arena, base, RegionKind::kArena);
  show(g_box.maps, base, RegionKind::kMaps);
  show(g_box.memory, base, RegionKind::kMemory);
  show(g_box.thread_stacks, base, RegionKind::kThreadStacks);
  show(g_box.thread_frames, base, RegionKind::kThreadFrames);
  show(g_box.referrers, base, RegionKind::kHolders);
  show(g_box.arguments, base, RegionKind::kArguments);
}

}  // namespace

uint64_t core_bytes() noexcept { return kPlan.nbytes; }

bool show_early_memory() noexcept {
  if (g_box.header != nullptr) {  // else all of it is zero, in pages that were never touched
    memset(static_cast<void*>(&early.header), 0, sizeof early.header);
    memset(early.epochs, 0, sizeof early.epochs);
  }
  early.header.journal_used = kJournalFirst;
  if (early.crash.state != 0) memset(static_cast<void*>(&early.crash), 0, sizeof early.crash);
  if (g_box.header == &early.header) return false;  // usually a forked child: what is not written need not be copied
  show_crash_regions(nullptr);
  g_box.journal = {early.journal, kEarlyJournal};
  g_box.epochs = {early.epochs, kEarlyEpochs};
  g_box.crash = {&early.crash, 1};
  box_mapping_count.store(0, std::memory_order_release);
  box_file_bytes = 0;
  g_box.header = &early.header;
  return true;
}

void move_core_regions(char* base) noexcept {
  auto& header = *reinterpret_cast<FileHeader*>(base);
  memcpy(base + kPlan.entries[0].offset, g_box.journal.data, g_box.header->journal_used);
  auto* epochs = reinterpret_cast<Epoch*>(base + kPlan.entries[1].offset);
  for (uint32_t i = 0; i < g_box.epochs.items; i++)
    if (uint32_t epoch = g_box.epochs.data[i].epoch) epochs[epoch % kEpochSlots] = g_box.epochs.data[i];
  static_assert(kCrashRegions[0].kind == RegionKind::kCrash);
  memcpy(base + kPlan.entries[2].offset, g_box.crash.data, sizeof(CrashHeader));
  memcpy(&header, g_box.header, sizeof header);
  memcpy(base + sizeof header, kPlan.entries, sizeof kPlan.entries);
  header.region_count = kCoreRegions;
  show_crash_regions(base);
  show(g_box.journal, base, RegionKind::kJournal);
  show(g_box.epochs, base, RegionKind::kEpochs);
  show(g_box.crash, base, RegionKind::kCrash);
  box_mappings[0] = {base, 0, kPlan.nbytes};
  box_mapping_count.store(1, std::memory_order_release);
  box_file_bytes = kPlan.nbytes;
  g_box.header = &header;
}

}  // namespace pytracer::crashsafe
