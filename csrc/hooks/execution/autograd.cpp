// Autograd nodes: their history by Engine::evaluate_function, which torch's threads call for each; the one running now by
// torch::autograd::get_current_node(). Not by a global RecordFunction: torch copies the list of callbacks for every node, 200 ns for the
// first of them, and sets up a RecordFunction for each node, 270 ns more (docs/measurements/cost.md).
#include "blackbox/layout.h"
#include "core/core.h"
#include "core/core_cuda.h"
#include "hooks/allocations/external.h"
#include "hooks/hooks.h"
#include "hooks/support/call_site.h"
#include "hooks/support/got_patch.h"
#include "hooks/support/intern.h"
#include "hooks/support/node_classes.h"
#include "hooks/support/tensors.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>  // node.h since torch 2.12
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/input_buffer.h>

#include <atomic>
#include <string>

namespace pytracer::hooks {

using torch::autograd::GraphTask;
using torch::autograd::InputBuffer;
using torch::autograd::Node;
using torch::autograd::ReadyQueue;

// Private in torch: declared by its symbol, the same in 2.11, 2.13 and 2.14. Weak: null where torch has another symbol.
void evaluate_function(torch::autograd::Engine*, std::shared_ptr<GraphTask>&, Node*, InputBuffer&, const std::shared_ptr<ReadyQueue>&) __asm__(
    "_ZN5torch8autograd6Engine17evaluate_functionERSt10shared_ptrINS0_9GraphTaskEEPNS0_4NodeERNS0_11InputBufferERKS2_INS0_10ReadyQueueEE")
    __attribute__((weak));

namespace {

using blackbox::NodeRecord;
using Name = char[sizeof(NodeRecord::name)];

// Names of classes, by vtable. Those of Python classes are copied each time: a class may be destroyed, and its name with it.
constexpr uint32_t kNamesLog2 = 10, kNames = 1u << kNamesLog2;
InternMap<kNamesLog2 + 1> known_names;
Name names[kNames];
std::atomic<uint32_t> name_count{0};
std::atomic<bool> on{false};

// "torch::autograd::CppFunction<Mine::Op>" to "CppFunction<Mine::Op>".
std::string without_namespaces(const std::string& name) {
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i < name.size(); i++) {
    depth += (name[i] == '<') - (name[i] == '>');
    if (name[i] == ':' && depth == 0) start = i + 1;
  }
  return name.substr(start);
}

__attribute__((noinline)) void name_unknown(Name& to, const Node& node, uint64_t vtable) {
  bool is_python = false;
  const char* name = node_class(node, is_python);
  if (is_python) return copy_name(to, name);
  copy_name(to, without_namespaces(node.name()).c_str());
  uint32_t index = name_count.fetch_add(1, std::memory_order_relaxed);
  if (index >= kNames) {
    name_count.store(kNames, std::memory_order_relaxed);
    return;
  }
  memcpy(names[index], to, sizeof to);
  known_names.add(vtable, index + 1);
}

void name_of(Name& to, const Node& node) {
  uint64_t vtable;
  memcpy(&vtable, &node, sizeof vtable);
  if (uint32_t index = known_names.find(vtable))
    memcpy(to, names[index - 1], sizeof to);
  else
    name_unknown(to, node, vtable);
}

// The handle of a stream. c10 cannot tell it before torch 2.11, where only the ids of the default stream and of the program's own streams
// are their handles; c10's pools have odd ids.
template <class Stream>
bool handle_of(const Stream& stream, uint64_t& handle) {
  if constexpr (requires { stream.native_handle(); }) {
    handle = reinterpret_cast<uint64_t>(stream.native_handle());
    return true;
  } else {
    handle = static_cast<uint64_t>(stream.id());
    return (stream.id() & 1) == 0;
  }
}

// The engine switches to the node's CUDA stream a moment later. The handle of an id never changes, and the query takes longer than all
// the rest.
void note_stream_of(Node& node, NodeRecord& record) {
  pytracer_stream here{};
  if (pytracer_current_stream(&here) == 0) return;
  record.device = here.device + 1;
  record.stream = here.stream;
  std::optional<c10::Stream> own = node.stream();
  if (!own) return;
  static thread_local struct {
    c10::StreamId id;
    c10::DeviceIndex device;
    uint64_t handle;
    bool known;
  } last{0, -1, 0, false};
  if (last.id != own->id() || last.device != own->device_index()) {
    last = {own->id(), own->device_index(), 0, false};
    last.known = handle_of(*own, last.handle);
  }
  record.device = last.known ? static_cast<uint32_t>(last.device) + 1 : 0;
  record.stream = last.handle;
}

// An internal error must not become an error of the backward pass.
__attribute__((noinline)) void node_runs(Node& node, const InputBuffer& inputs) noexcept {
  node_begins();
  try {
    NodeRecord record{};
    name_of(record.name, node);
    record.sequence_nr = static_cast<int64_t>(node.sequence_nr());
    note_stream_of(node, record);
    for (const at::Tensor& tensor : inputs.buffer) {
      if (!tensor.defined() || !tensor.has_storage()) continue;
      if (record.input_count < std::size(record.storages)) record.storages[record.input_count] = storage_addr(tensor);
      record.input_count++;
      follow(tensor.storage(), true);
    }
    pytracer_record(static_cast<uint32_t>(blackbox::RecordKind::kNode), &record, sizeof record);
  } catch (...) {
    pytracer_count_hook_error();
  }
}

// Nodes where autograd.grad() only captures its results are not executed.
bool is_needed(const GraphTask& task, Node* node) {
  if (task.exec_info_.empty()) return true;
  auto found = task.exec_info_.find(node);
  return found != task.exec_info_.end() && found->second.needed_;
}

void evaluate(torch::autograd::Engine* engine, std::shared_ptr<GraphTask>& task, Node* node, InputBuffer& inputs,
              const std::shared_ptr<ReadyQueue>& queue) {
  if (on.load(std::memory_order_relaxed) && is_needed(*task, node)) node_runs(*node, inputs);
  evaluate_function(engine, task, node, inputs, queue);  // our own call is not redirected
}

const GotPatch kPatch{reinterpret_cast<void*>(evaluate_function), reinterpret_cast<void*>(evaluate)};

// Called by the crash handler on the crashed thread: reads, and nothing else. On a thread that has never used torch, its thread-locals
// would be allocated now, perhaps below the malloc that found the heap corrupted and holds its lock: a hang instead of a death.
bool probe(pytracer_node* out) {
  if (!has_torch_thread_locals()) return false;
  auto node = torch::autograd::get_current_node();
  if (!node) return false;
  out->name = node_class(*node, out->is_python);
  out->sequence_nr = static_cast<int64_t>(node->sequence_nr());
  out->node = node.get();
  return true;
}

std::vector<GotPatch> patches(Level level) {
  if (level == Level::kLight) return {};
  return {kPatch};
}

const char* install(Level level) {
  pytracer_set_node_probe(probe);
  if (level == Level::kLight) return nullptr;
  if (patched_slots(kPatch.to) == 0) return "torch's engine does not call its nodes as known: there is no history of them";
  on.store(true, std::memory_order_release);
  return nullptr;
}

void uninstall() {
  pytracer_set_node_probe(nullptr);
  if (on.exchange(false, std::memory_order_acq_rel)) patch_got({{kPatch.to, kPatch.from}});
}

}  // namespace

const Hook kAutograd{"autograd-nodes", install, uninstall, patches};

}  // namespace pytracer::hooks
