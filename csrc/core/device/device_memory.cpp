#include "core/device/device_memory.h"

#include "core/device/cuda_graphs.h"
#include "core/device/cuda_streams.h"
#include "core/device/device_oom.h"
#include "core/file/journal.h"
#include "core/file/regions.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/sys.h"

#include <sched.h>
#include <atomic>
#include <cstring>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint32_t kSlots = 1u << kDeviceBlockSlotsLog2, kMask = kSlots - 1;
constexpr uint32_t kWindow = 128;
constexpr uint32_t kMissedFrees = 512;
constexpr int kSpins = 1000;

std::atomic<bool> open_{false};
DeviceBlock* blocks = nullptr;
DeviceBlock* freed_blocks = nullptr;
DeviceSegment* segments = nullptr;
uint32_t freed_count = 0, segments_used = 0;
std::atomic_flag locked = ATOMIC_FLAG_INIT;

// Frees of unknown blocks while existing memory is being reported: these blocks must not be added afterwards.
bool expecting = false;
PYTRACER_LARGE uint64_t missed[kMissedFrees];
uint32_t missed_count = 0;

DeviceBlock& slot_at(uint64_t addr, uint32_t i) {
  uint64_t first = ((addr >> 9) * 0x9E3779B97F4A7C15ull) >> (64 - kDeviceBlockSlotsLog2);
  return blocks[(first + i) & kMask];
}

DeviceBlock* find(uint64_t addr) {
  for (uint32_t i = 0; i < kWindow; i++) {
    DeviceBlock& block = slot_at(addr, i);
    if (block.addr == addr && block.state != static_cast<uint16_t>(BlockState::kEmpty)) return &block;
  }
  return nullptr;
}

DeviceBlock* find_room(uint64_t addr) {
  for (uint32_t i = 0; i < kWindow; i++)
    if (slot_at(addr, i).state == static_cast<uint16_t>(BlockState::kEmpty)) return &slot_at(addr, i);
  return nullptr;
}

uint32_t now() { return std::atomic_ref(g_box.header->epoch).load(std::memory_order_relaxed); }
void count(uint32_t& counter) { std::atomic_ref(counter).fetch_add(1, std::memory_order_relaxed); }

void add_block(const pytracer_device_event& event, uint32_t sequence, uint32_t epoch, BlockState state) {
  DeviceBlock* room = find(event.addr);  // its free was missed: the slot is taken over
  if (room == nullptr) room = find_room(event.addr);
  if (room == nullptr) return count(g_box.header->device_blocks_dropped);
  crashsafe::SeqSlot(*room).write(sequence != 0 ? sequence : 1, [&](DeviceBlock& block) {
    memset(static_cast<void*>(&block), 0, sizeof block);
    block.state = static_cast<uint16_t>(state);
    block.device = static_cast<uint16_t>(event.device);
    block.addr = event.addr;
    block.nbytes = event.nbytes;
    block.stream = event.stream;
    block.pool_graph = event.pool_graph;
    block.pool_number = event.pool_number;
    block.alloc_tid = sequence != 0 ? crashsafe::sys_gettid() : 0;
    block.alloc_site_id = event.site_id;
    block.alloc_site_where = event.site_where;
    block.alloc_epoch = epoch;
    block.alloc_sequence = sequence;
  });
}

void set_freed(DeviceBlock& block, const pytracer_device_event& event, uint32_t sequence) {
  block.free_tid = crashsafe::sys_gettid();
  block.free_site_id = event.site_id;
  block.free_site_where = event.site_where;
  block.free_epoch = now();
  block.free_sequence = sequence;
}

void await_block(const pytracer_device_event& event, uint32_t sequence) {
  DeviceBlock* found = find(event.addr);
  if (found == nullptr) return;  // unknown: counted when it is freed
  crashsafe::SeqSlot(*found).write(sequence, [&](DeviceBlock& block) {
    block.state = static_cast<uint16_t>(BlockState::kAwaited);
    set_freed(block, event, sequence);
  });
}

void free_block(const pytracer_device_event& event, uint32_t sequence) {
  DeviceBlock* found = find(event.addr);
  if (found == nullptr) {
    if (expecting && missed_count < kMissedFrees) missed[missed_count++] = event.addr;
    return count(g_box.header->device_unknown_frees);
  }
  DeviceBlock life = *found;
  if (life.state != static_cast<uint16_t>(BlockState::kAwaited)) set_freed(life, event, sequence);
  life.state = static_cast<uint16_t>(BlockState::kFreed);
  graph_memory_freed(life);
  freed_count++;
  crashsafe::Ring<DeviceBlock, kDeviceFreed>(freed_blocks).assign(freed_count, life);
  crashsafe::SeqSlot(*found).write(0, [](DeviceBlock& block) { block.state = static_cast<uint16_t>(BlockState::kEmpty); });
}

DeviceSegment* segment_room() {
  for (uint32_t i = 0; i < segments_used; i++)
    if (segments[i].state == static_cast<uint32_t>(SegmentState::kEmpty)) return &segments[i];
  if (segments_used < kDeviceSegments) return &segments[segments_used++];
  DeviceSegment* oldest = nullptr;
  for (uint32_t i = 0; i < segments_used; i++) {
    DeviceSegment& segment = segments[i];
    if (segment.state == static_cast<uint32_t>(SegmentState::kGone) && (oldest == nullptr || segment.end_sequence < oldest->end_sequence))
      oldest = &segment;
  }
  return oldest;
}

void add_segment(const DeviceSegment& values, uint32_t sequence) {
  DeviceSegment* room = segment_room();
  if (room == nullptr) return count(g_box.header->device_blocks_dropped);
  crashsafe::SeqSlot(*room).assign(sequence, values);
}

void begin_segment(const pytracer_device_event& event, uint32_t sequence, bool expandable) {
  DeviceSegment segment{};
  segment.state = static_cast<uint16_t>(SegmentState::kLive);
  segment.device = static_cast<uint16_t>(event.device);
  segment.addr = event.addr;
  segment.nbytes = event.nbytes;
  segment.stream = event.stream;
  segment.pool_graph = event.pool_graph;
  segment.pool_number = event.pool_number;
  segment.expandable = expandable;
  segment.begin_epoch = now();
  segment.begin_sequence = sequence;
  add_segment(segment, sequence);
}

// Parts of an expandable segment are unmapped: the rest of a range stays live, the unmapped part becomes an item of its own.
void end_segment(const pytracer_device_event& event, uint32_t sequence) {
  uint64_t begin = event.addr, end = event.addr + event.nbytes;
  uint32_t before = segments_used;
  for (uint32_t i = 0; i < before; i++) {
    DeviceSegment whole = segments[i];
    if (whole.state != static_cast<uint32_t>(SegmentState::kLive)) continue;
    uint64_t low = whole.addr > begin ? whole.addr : begin, whole_end = whole.addr + whole.nbytes;
    uint64_t high = whole_end < end ? whole_end : end;
    if (low >= high) continue;
    DeviceSegment gone = whole;
    gone.state = static_cast<uint16_t>(SegmentState::kGone);
    gone.addr = low;
    gone.nbytes = high - low;
    gone.end_epoch = now();
    gone.end_sequence = sequence;
    crashsafe::SeqSlot(segments[i]).assign(sequence, gone);
    for (auto [from, to] : {std::pair{whole.addr, low}, std::pair{high, whole_end}}) {
      if (from == to) continue;
      DeviceSegment rest = whole;
      rest.addr = from;
      rest.nbytes = to - from;
      add_segment(rest, sequence);
    }
  }
}

uint32_t next_sequence() {
  std::atomic_ref counter(g_box.header->device_sequence);
  uint32_t next = counter.load(std::memory_order_relaxed) + 1;
  if (next == 0) next = 1;
  counter.store(next, std::memory_order_release);
  return next;
}

}  // namespace

DeviceLock::DeviceLock() noexcept {
  for (int spins = 0; locked.test_and_set(std::memory_order_acquire); spins++)
    if (spins > kSpins) sched_yield();
}
DeviceLock::~DeviceLock() noexcept { locked.clear(std::memory_order_release); }

const DeviceBlock* find_device_block(uint64_t addr) noexcept { return find(addr); }
uint32_t device_sequence() noexcept { return g_box.header->device_sequence; }

void forget_device_memory() noexcept {
  locked.clear(std::memory_order_relaxed);  // its holder does not exist in the child
  open_.store(false, std::memory_order_relaxed);
}

}  // namespace pytracer::core

using namespace pytracer;
using namespace pytracer::core;

extern "C" {

int pytracer_open_device_memory(void) {
  if (pytracer_recording() == 0) return 0;
  if (open_.load(std::memory_order_acquire)) return 1;
  blocks = static_cast<DeviceBlock*>(add_region(RegionKind::kDeviceBlocks, sizeof(DeviceBlock), kSlots, 0, kDeviceBlockSlotsLog2));
  freed_blocks = static_cast<DeviceBlock*>(add_region(RegionKind::kDeviceFreed, sizeof(DeviceBlock), kDeviceFreed, 0, 0));
  segments = static_cast<DeviceSegment*>(add_region(RegionKind::kDeviceSegments, sizeof(DeviceSegment), kDeviceSegments, 0, 0));
  bool all = blocks != nullptr && freed_blocks != nullptr && segments != nullptr && open_cuda_graphs() && open_cuda_streams();
  open_.store(all, std::memory_order_release);
  return all;
}

void pytracer_device_acted(enum pytracer_device_action action, const struct pytracer_device_event* event) {
  if (!open_.load(std::memory_order_acquire)) return;
  DeviceLock lock;
  uint32_t sequence = next_sequence();
  switch (action) {
    case PYTRACER_BLOCK_ALLOCATED:
      note_stream(event->device, event->stream, StreamState::kUnknown, 0);
      graph_memory_allocated(*event, sequence);
      add_block(*event, sequence, now(), BlockState::kLive);
      break;
    case PYTRACER_BLOCK_AWAITED: await_block(*event, sequence); break;
    case PYTRACER_BLOCK_FREED: free_block(*event, sequence); break;
    case PYTRACER_SEGMENT_ALLOCATED: begin_segment(*event, sequence, false); break;
    case PYTRACER_SEGMENT_MAPPED: begin_segment(*event, sequence, true); break;
    case PYTRACER_SEGMENT_GONE: end_segment(*event, sequence); break;
    case PYTRACER_OUT_OF_MEMORY: write_device_oom(*event, blocks, kSlots, segments, segments_used); break;
  }
}

void pytracer_expect_known_blocks(int expect) {
  DeviceLock lock;
  expecting = expect != 0;
  missed_count = 0;
}

void pytracer_known_block(const struct pytracer_device_event* event, uint32_t state) {
  if (!open_.load(std::memory_order_acquire)) return;
  DeviceLock lock;
  if (find(event->addr) != nullptr) return;
  for (uint32_t i = 0; i < missed_count; i++)
    if (missed[i] == event->addr) return;
  add_block(*event, 0, 0, static_cast<BlockState>(state));
}

void pytracer_known_segment(const struct pytracer_device_event* event, int expandable) {
  if (!open_.load(std::memory_order_acquire)) return;
  DeviceLock lock;
  for (uint32_t i = 0; i < segments_used; i++)
    if (segments[i].addr == event->addr && segments[i].state == static_cast<uint16_t>(SegmentState::kLive)) return;
  begin_segment(*event, 1, expandable != 0);
}

uint32_t pytracer_device_events(void) { return open_.load(std::memory_order_acquire) ? device_sequence() : 0; }

}  // extern "C"
