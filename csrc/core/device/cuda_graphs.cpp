#include "core/device/cuda_graphs.h"

#include "core/device/device_memory.h"
#include "core/file/regions.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/seq_slot.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/sys.h"

#include <atomic>
#include <cstring>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint32_t kHeads = 4096, kNone = ~0u;

CudaGraph* graphs = nullptr;
GraphInput* inputs = nullptr;
uint32_t graph_count = 0, input_count = 0, freed_count = 0;
bool has_holes = false;
// Chains of inputs by address, so that a free costs one look-up.
PYTRACER_LARGE uint32_t heads[kHeads], next_input[kGraphInputs];

uint32_t head_of(uint64_t addr) { return static_cast<uint32_t>(((addr >> 9) * 0x9E3779B97F4A7C15ull) >> 52); }

CudaGraph* graph_of(uint32_t number) {
  if (graphs == nullptr || number == 0) return nullptr;
  CudaGraph& graph = graphs[(number - 1) % kCudaGraphs];
  return graph.number == number ? &graph : nullptr;
}

void change_broken(uint32_t number) {
  CudaGraph* graph = graph_of(number);
  if (graph != nullptr) std::atomic_ref(graph->broken).fetch_add(1, std::memory_order_release);
}

bool is(const GraphInput& input, InputState state) { return input.state == static_cast<uint16_t>(state); }

// Inputs of destroyed graphs are kept for the report until their slots are needed; they no longer change.
bool in_use(const GraphInput& input) {
  const CudaGraph* graph = graph_of(input.graph);
  return graph != nullptr && graph->state != static_cast<uint32_t>(GraphState::kReset) && graph->state != static_cast<uint32_t>(GraphState::kFailed);
}

// Before the graph itself is marked.
void retire_inputs(uint32_t number) {
  for (uint32_t i = 0; i < input_count; i++)
    if (inputs[i].graph == number) freed_count -= is(inputs[i], InputState::kFreed);
  has_holes = true;
}

void add_to_chain(uint32_t at) {
  uint32_t& head = heads[head_of(inputs[at].addr)];
  next_input[at] = head;
  head = at;
}

// Compacts the array where graphs were removed.
void compact() {
  if (!has_holes) return;
  has_holes = false;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < input_count; i++) {
    if (!in_use(inputs[i])) continue;
    if (kept != i) crashsafe::SeqSlot(inputs[kept]).assign(inputs[i].order, inputs[i]);
    kept++;
  }
  for (uint32_t i = kept; i < input_count; i++)
    crashsafe::SeqSlot(inputs[i]).write(0, [](GraphInput& input) { input.state = static_cast<uint16_t>(InputState::kEmpty); });
  input_count = kept;
  for (uint32_t& head : heads) head = kNone;
  for (uint32_t i = 0; i < input_count; i++) add_to_chain(i);
}

bool knows_input(uint32_t number, uint64_t addr) {
  for (uint32_t i = heads[head_of(addr)]; i != kNone; i = next_input[i])
    if (inputs[i].addr == addr && inputs[i].graph == number) return true;
  return false;
}

}  // namespace

bool open_cuda_graphs() noexcept {
  graphs = static_cast<CudaGraph*>(add_region(RegionKind::kCudaGraphs, sizeof(CudaGraph), kCudaGraphs, 0, 0));
  inputs = static_cast<GraphInput*>(add_region(RegionKind::kGraphInputs, sizeof(GraphInput), kGraphInputs, 0, 0));
  graph_count = input_count = freed_count = 0;
  for (uint32_t& head : heads) head = kNone;
  return graphs != nullptr && inputs != nullptr;
}

void graph_memory_freed(const DeviceBlock& life) noexcept {
  for (uint32_t i = heads[head_of(life.addr)]; i != kNone; i = next_input[i]) {
    if (inputs[i].addr != life.addr || !is(inputs[i], InputState::kLive) || !in_use(inputs[i])) continue;
    crashsafe::SeqSlot(inputs[i]).write(life.free_sequence, [&](GraphInput& input) {
      input.state = static_cast<uint16_t>(InputState::kFreed);
      input.free_site_id = life.free_site_id;
      input.free_site_where = life.free_site_where;
      input.free_epoch = life.free_epoch;
      input.free_sequence = life.free_sequence;
    });
    freed_count++;
    change_broken(inputs[i].graph);
  }
}

void graph_memory_allocated(const pytracer_device_event& event, uint32_t sequence) noexcept {
  for (uint32_t i = 0, left = freed_count; i < input_count && left != 0; i++) {
    if (!is(inputs[i], InputState::kFreed) || !in_use(inputs[i])) continue;
    left--;
    if (event.addr >= inputs[i].addr + inputs[i].nbytes || inputs[i].addr >= event.addr + event.nbytes) continue;
    crashsafe::SeqSlot(inputs[i]).write(sequence, [&](GraphInput& input) {
      input.state = static_cast<uint16_t>(InputState::kReallocated);
      input.new_site_id = event.site_id;
      input.new_site_where = event.site_where;
      input.new_addr = event.addr;
      input.new_nbytes = event.nbytes;
      input.new_epoch = std::atomic_ref(g_box.header->epoch).load(std::memory_order_relaxed);
      input.new_sequence = sequence;
    });
    freed_count--;
  }
}

}  // namespace pytracer::core

using namespace pytracer;
using namespace pytracer::core;

extern "C" {

uint32_t pytracer_graph_begin(const struct pytracer_device_event* capture) {
  if (graphs == nullptr || pytracer_recording() == 0) return 0;
  DeviceLock lock;
  uint32_t number = ++graph_count;
  if (number > kCudaGraphs && graph_of(number - kCudaGraphs) != nullptr) retire_inputs(number - kCudaGraphs);  // its slot is taken
  crashsafe::SeqSlot(graphs[(number - 1) % kCudaGraphs]).write(number, [&](CudaGraph& graph) {
    memset(static_cast<void*>(&graph), 0, sizeof graph);
    graph.state = static_cast<uint32_t>(GraphState::kCapturing);
    graph.number = number;
    graph.device = capture->device;
    graph.pool_graph = capture->pool_graph;
    graph.pool_number = capture->pool_number;
    graph.stream = capture->stream;
    graph.site_id = capture->site_id;
    graph.site_where = capture->site_where;
    graph.capture_sequence = device_sequence();
  });
  return number;
}

void pytracer_graph_input(uint32_t number, uint64_t addr, uint32_t kernel) {
  DeviceLock lock;
  CudaGraph* graph = graph_of(number);
  if (graph == nullptr) return;
  const DeviceBlock* block = find_device_block(addr);
  if (block == nullptr) {
    graph->inputs_dropped++;
    return;
  }
  bool private_pool = graph->pool_graph != 0 || graph->pool_number != 0;
  bool own = private_pool && block->pool_graph == graph->pool_graph && block->pool_number == graph->pool_number;
  if (own || block->alloc_sequence > graph->capture_sequence || knows_input(number, addr)) return;
  if (input_count >= kGraphInputs) compact();
  uint32_t at = input_count;
  if (at >= kGraphInputs) {
    graph->inputs_dropped++;
    return;
  }
  crashsafe::SeqSlot(inputs[at]).write(graph->capture_sequence != 0 ? graph->capture_sequence : 1, [&](GraphInput& input) {
    memset(static_cast<void*>(&input), 0, sizeof input);
    input.state = static_cast<uint16_t>(InputState::kLive);
    input.device = block->device;
    input.graph = number;
    input.kernel = kernel;
    input.addr = addr;
    input.nbytes = block->nbytes;
    input.alloc_site_id = block->alloc_site_id;
    input.alloc_site_where = block->alloc_site_where;
  });
  add_to_chain(at);
  input_count++;
  graph->inputs++;
}

void pytracer_graph_collective(uint32_t number) {
  DeviceLock lock;
  CudaGraph* graph = graph_of(number);
  if (graph != nullptr) graph->collectives++;
}

void pytracer_graph_end(uint32_t number, int captured, uint32_t pool_graph, uint32_t pool_number) {
  DeviceLock lock;
  CudaGraph* graph = graph_of(number);
  if (graph == nullptr) return;
  graph->captured_ns = crashsafe::now_ns();
  if (captured != 0) {
    graph->pool_graph = pool_graph;
    graph->pool_number = pool_number;
  }
  if (captured == 0) retire_inputs(number);
  std::atomic_ref(graph->state).store(static_cast<uint32_t>(captured != 0 ? GraphState::kCaptured : GraphState::kFailed), std::memory_order_release);
}

uint32_t pytracer_graph_replayed(uint32_t number) {
  CudaGraph* graph = graph_of(number);
  if (graph == nullptr) return 0;
  uint64_t now = crashsafe::now_ns();
  std::atomic_ref(graph->replays).fetch_add(1, std::memory_order_relaxed);
  std::atomic_ref(graph->replayed_ns).store(now, std::memory_order_relaxed);
  uint32_t broken = std::atomic_ref(graph->broken).load(std::memory_order_acquire);
  if (broken == 0) return 0;
  if (std::atomic_ref(graph->broken_replays).fetch_add(1, std::memory_order_relaxed) == 0)
    std::atomic_ref(graph->broken_replayed_ns).store(now, std::memory_order_relaxed);
  std::atomic_ref(graph->broken_sequence).store(device_sequence(), std::memory_order_relaxed);
  return broken;
}

void pytracer_graph_reset(uint32_t number, uint32_t site_id, uint32_t site_where) {
  DeviceLock lock;
  CudaGraph* graph = graph_of(number);
  if (graph == nullptr || graph->reset_ns != 0) return;
  graph->reset_site_id = site_id;
  graph->reset_site_where = site_where;
  graph->reset_ns = crashsafe::now_ns();
  retire_inputs(number);
  std::atomic_ref(graph->state).store(static_cast<uint32_t>(GraphState::kReset), std::memory_order_release);
}

void pytracer_graph_name(uint32_t number, uint32_t name_id) {
  DeviceLock lock;
  CudaGraph* graph = graph_of(number);
  if (graph != nullptr) graph->name_id = name_id;
}

}  // extern "C"
