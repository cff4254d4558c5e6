// The trace tracker of torch's caching allocator. It is called under the allocator's lock: no Python, no CUDA, no allocation.
#include "blackbox/layout.h"
#include "core/core_cuda.h"
#include "cuda/cuda.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <atomic>

namespace pytracer::cuda {
namespace {

using c10::cuda::CUDACachingAllocator::TraceEntry;

std::atomic<bool> on{false};
bool attached = false;
std::atomic<void (*)()> call_site_function{nullptr};

uint32_t half_of_pool(uint64_t value) { return static_cast<uint32_t>(value < 0xffffffff ? value : 0xffffffff); }

pytracer_device_event describe(const TraceEntry& entry) {
  pytracer_device_event event{};
  event.addr = static_cast<uint64_t>(entry.addr_);
  event.nbytes = entry.size_;
  event.stream = reinterpret_cast<uint64_t>(entry.stream_);
  event.pool_graph = half_of_pool(entry.mempool_.first);
  event.pool_number = half_of_pool(entry.mempool_.second);
  event.device = static_cast<uint32_t>(entry.device_);
  return event;
}

pytracer_device_action action_of(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::ALLOC: return PYTRACER_BLOCK_ALLOCATED;
    case TraceEntry::FREE_REQUESTED: return PYTRACER_BLOCK_AWAITED;
    case TraceEntry::FREE_COMPLETED: return PYTRACER_BLOCK_FREED;
    case TraceEntry::SEGMENT_ALLOC: return PYTRACER_SEGMENT_ALLOCATED;
    case TraceEntry::SEGMENT_MAP: return PYTRACER_SEGMENT_MAPPED;
    case TraceEntry::SEGMENT_FREE:
    case TraceEntry::SEGMENT_UNMAP: return PYTRACER_SEGMENT_GONE;
    case TraceEntry::OOM: return PYTRACER_OUT_OF_MEMORY;
    default: return static_cast<pytracer_device_action>(0);  // SNAPSHOT, and what later versions add
  }
}

bool has_user(pytracer_device_action action) {
  return action == PYTRACER_BLOCK_ALLOCATED || action == PYTRACER_BLOCK_AWAITED || action == PYTRACER_BLOCK_FREED || action == PYTRACER_OUT_OF_MEMORY;
}

void on_event(const TraceEntry& entry) noexcept {
  if (!on.load(std::memory_order_relaxed)) return;
  pytracer_device_action action = action_of(entry.action_);
  if (action == 0) return;
  pytracer_device_event event = describe(entry);
  if (has_user(action)) {
    pytracer_call_site site = call_site();
    event.site_id = site.id;
    event.site_where = site.where;
  }
  pytracer_device_acted(action, &event);
}

// Memory allocated before the tracker was attached: segments, and the consecutive blocks in them.
void report_known_memory(const c10::cuda::CUDACachingAllocator::SnapshotInfo& snapshot) {
  for (const auto& segment : snapshot.segments) {
    pytracer_device_event event{};
    event.addr = static_cast<uint64_t>(segment.address);
    event.nbytes = segment.total_size;
    event.stream = reinterpret_cast<uint64_t>(segment.stream);
    event.pool_graph = half_of_pool(segment.owner_private_pool_id.first);
    event.pool_number = half_of_pool(segment.owner_private_pool_id.second);
    event.device = static_cast<uint32_t>(segment.device);
    pytracer_known_segment(&event, segment.is_expandable);
    for (const auto& block : segment.blocks) {
      uint64_t size = block.size;
      event.nbytes = block.requested_size;
      auto state = block.active && !block.allocated ? blackbox::BlockState::kAwaited : blackbox::BlockState::kLive;
      if (block.allocated || block.active) pytracer_known_block(&event, static_cast<uint32_t>(state));
      event.addr += size;
    }
  }
}

}  // namespace

pytracer_call_site call_site() noexcept {
  auto function = reinterpret_cast<pytracer_call_site (*)() noexcept>(call_site_function.load(std::memory_order_relaxed));
  return function != nullptr ? function() : pytracer_call_site{};
}
void set_call_site(uint64_t function_addr) { call_site_function.store(reinterpret_cast<void (*)()>(function_addr), std::memory_order_relaxed); }

std::string attach() {
  if (pytracer_open_device_memory() == 0) return "the black box has no room for the memory of devices";
  if (attached) return {};
  pytracer_expect_known_blocks(1);
  on.store(true, std::memory_order_release);
  std::string refusal;
  try {
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(on_event);
    attached = true;
    report_known_memory(c10::cuda::CUDACachingAllocator::snapshot());
  } catch (const std::exception& error) {
    // cudaMallocAsync and pluggable allocators throw: a stack trace of torch's follows the first line.
    std::string text = error.what();
    refusal = c10::cuda::CUDACachingAllocator::get()->name() + ": " + text.substr(0, text.find('\n'));
    on.store(attached, std::memory_order_release);
  }
  pytracer_expect_known_blocks(0);
  return refusal;
}

void follow(bool wanted) noexcept { on.store(wanted && attached, std::memory_order_release); }

bool is_deaf() {
  if (!attached) return false;
  bool allocated = false;
  for (int device = 0; device < c10::cuda::device_count(); device++) {
    auto index = static_cast<c10::DeviceIndex>(device);
    if (!c10::cuda::hasPrimaryContext(index)) continue;
    allocated |= c10::cuda::CUDACachingAllocator::getDeviceStats(index).allocation[0].allocated > 0;
  }
  return allocated && pytracer_device_events() == 0;  // in this order: the queries wait for a context that is being made
}

}  // namespace pytracer::cuda
