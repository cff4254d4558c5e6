// c10d's operators, wrapped at the dispatch key that precedes every backend's and that every tensor has (BackendSelect;
// torch 2.11 to 2.14, c10/core/DispatchKeySet.h: default_included_set). DDP, FSDP and functional collectives all call these.
#include "hooks/distributed/collectives.h"

#include "hooks/allocations/external.h"

#include "blackbox/layout.h"
#include "core/core_cuda.h"
#include "hooks/hooks.h"
#include "hooks/support/call_site.h"
#include "hooks/support/per_process.h"
#include "hooks/support/tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

namespace pytracer::hooks {
namespace {

using blackbox::CollectiveSlot;
using blackbox::CollectiveState;

constexpr const char* kOperators[] = {"allreduce_",
                                      "allreduce_coalesced_",
                                      "allgather_",
                                      "_allgather_base_",
                                      "allgather_coalesced_",
                                      "allgather_into_tensor_coalesced_",
                                      "reduce_scatter_",
                                      "_reduce_scatter_base_",
                                      "reduce_scatter_tensor_coalesced_",
                                      "reduce_",
                                      "broadcast_",
                                      "gather_",
                                      "scatter_",
                                      "alltoall_",
                                      "alltoall_base_",
                                      "barrier",
                                      "monitored_barrier_",
                                      "send",
                                      "recv_",
                                      "recv_any_source_"};
constexpr uint32_t kPointToPoint = 1, kAsynchronous = 2, kOutputsOnly = 4;

thread_local Dispatched* current = nullptr;

// ---- groups: an entry of the journal each, and the counters that number their operations ----

struct Group {
  uint32_t journal_id = 0;
  uint64_t collectives = 0;
  std::unordered_map<int64_t, uint64_t> point_to_point;  // by peer and direction
};

// By name, which c10d keeps unique in a process. Locked for a look-up: collectives take microseconds at least. Empty in a forked child.
PerProcess<std::unordered_map<std::string, Group>> groups;

uint32_t write_group(c10d::ProcessGroup& group) {
  const std::string &name = group.getGroupName(), &description = group.getGroupDesc();
  blackbox::GroupEntry entry{};
  entry.size = group.getSize();
  entry.rank = group.getRank();
  entry.name_nbytes = static_cast<uint32_t>(name.size());
  entry.description_nbytes = static_cast<uint32_t>(description.size());
  copy_name(entry.backend, group.getBackendName().c_str());
  std::string bytes(reinterpret_cast<const char*>(&entry), sizeof entry);
  bytes += name;
  bytes += description;
  return pytracer_journal(static_cast<uint32_t>(blackbox::EntryKind::kGroupSeen), bytes.data(), bytes.size());
}

void number_in_group(c10d::ProcessGroup& group, CollectiveSlot& slot) {
  groups.with([&](auto& by_name) {
    Group& known = by_name[group.getGroupName()];
    if (known.journal_id == 0) known.journal_id = write_group(group);
    slot.group_id = known.journal_id;
    if ((slot.flags & kPointToPoint) != 0) {
      bool sends = strncmp(slot.name, "send", 4) == 0;
      slot.sequence_nr = ++known.point_to_point[static_cast<int64_t>(slot.peer) * 2 + (sends ? 1 : 0)];
    } else {
      slot.sequence_nr = ++known.collectives;
    }
  });
}

// ---- arguments ----

struct Sums {
  uint64_t addr = 0, storage = 0, numel = 0, nbytes = 0;
  uint32_t count = 0;
  std::optional<at::Tensor> first;

  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage()) return;
    if (count++ == 0) {
      first = tensor;
      addr = reinterpret_cast<uint64_t>(tensor.const_data_ptr());  // data_ptr() would materialize a copy-on-write tensor
      storage = storage_addr(tensor);
      follow(tensor.storage(), true);
    }
    numel += static_cast<uint64_t>(tensor.numel());
    nbytes += tensor.nbytes();
  }
  void add(const c10::IValue& value) {
    if (value.isTensor())
      add(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
    else if (value.isList())
      for (const c10::IValue& item : value.toListRef()) add(item);
  }
};

struct Arguments {
  CollectiveSlot slot{};
  Sums inputs, outputs;
  c10::intrusive_ptr<c10d::ProcessGroup> group;

  void read(const std::string& name, const c10::IValue& value) {
    if (name == "process_group")
      group = value.toCustomClass<c10d::ProcessGroup>();
    else if (name == "reduce_op")
      slot.reduce_op = static_cast<int32_t>(value.toCustomClass<c10d::ReduceOp>()->op_);
    else if (name == "root_rank")
      slot.root = static_cast<int32_t>(value.toInt());
    else if (name == "dst" || name == "src")
      slot.peer = static_cast<int32_t>(value.toInt());
    else if (name == "tag")
      slot.tag = static_cast<int32_t>(value.toInt());
    else if (name == "async_op")
      slot.flags |= value.toBool() ? kAsynchronous : 0;
    else if (name == "timeout")
      slot.timeout_ms = static_cast<int32_t>(std::clamp<int64_t>(value.toInt(), -1, 0x7fffffff));
    else if (name.rfind("output", 0) == 0 && name != "output_split_sizes")
      outputs.add(value);
    else if (name.rfind("input", 0) == 0 && name != "input_split_sizes")
      inputs.add(value);
    else if (name == "tensors" || name == "tensor")
      inputs.add(value);
  }

  void conclude() {
    const Sums& own = inputs.count != 0 ? inputs : outputs;
    if (inputs.count == 0 && outputs.count != 0) slot.flags |= kOutputsOnly;
    slot.buffer_addr = own.addr;
    slot.storage_addr = own.storage;
    slot.numel = own.numel;
    slot.nbytes = own.nbytes;
    slot.tensor_count = own.count;
    slot.output_addr = outputs.addr;
    slot.output_storage_addr = outputs.storage;
    slot.output_numel = outputs.numel;
    slot.output_nbytes = outputs.nbytes;
    if (!own.first) return;
    if (pytracer_stream here{}; own.first->is_cuda() && pytracer_current_stream(&here) != 0) {
      slot.stream = static_cast<uint32_t>(here.stream);
      slot.graph = here.graph;
    }
    copy_name(slot.dtype, c10::toString(own.first->scalar_type()));
    slot.dim_count = static_cast<uint32_t>(own.first->dim());
    for (size_t i = 0; i < std::size(slot.sizes) && i < static_cast<size_t>(own.first->dim()); i++)
      slot.sizes[i] = static_cast<uint32_t>(std::min<int64_t>(own.first->size(static_cast<int64_t>(i)), 0xffffffff));
  }
};

// The arguments of a c10d operator; 0 when the call is not recorded.
uint64_t describe(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& schema = op.schema();
  Arguments arguments;
  CollectiveSlot& slot = arguments.slot;
  slot.root = slot.peer = slot.tag = slot.reduce_op = slot.timeout_ms = -1;
  const std::string& full = schema.name();
  copy_name(slot.name, full.c_str() + (full.rfind("c10d::", 0) == 0 ? 6 : 0));
  if (strncmp(slot.name, "send", 4) == 0 || strncmp(slot.name, "recv", 4) == 0) slot.flags |= kPointToPoint;
  size_t count = schema.arguments().size();
  for (size_t i = 0; i < count; i++) arguments.read(schema.arguments()[i].name(), stack[stack.size() - count + i]);
  const auto& first = arguments.inputs.first ? arguments.inputs.first : arguments.outputs.first;
  if (first && first->is_meta()) return 0;  // traced, not executed
  arguments.conclude();
  if (arguments.group) number_in_group(*arguments.group, slot);
  CallSite site = detailed_call_site();
  slot.site_id = site.id;
  slot.site_where = site.where;
  if (slot.graph != 0) pytracer_graph_collective(slot.graph);
  return pytracer_collective_scheduled(&slot);
}

void reached(uint64_t number, CollectiveState state) { pytracer_collective_reached(number, static_cast<uint32_t>(state)); }

// Calls the backend's kernel; `current` names the collective meanwhile.
void dispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Dispatched here;
  try {
    watch_ranges();
    here.number = describe(op, *stack);
  } catch (...) {
    pytracer_count_hook_error();
  }
  Dispatched* outer = current;
  current = &here;
  bool returns_work = !op.schema().returns().empty();
  try {
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect), stack);
  } catch (...) {
    current = outer;
    reached(here.number, CollectiveState::kFailed);
    pytracer_collective_returned(here.number);
    throw;
  }
  current = outer;
  pytracer_collective_returned(here.number);
  if (!returns_work) reached(here.number, CollectiveState::kCompleted);
}

std::unique_ptr<torch::Library> library;

const char* install(Level) {
  if (pytracer_open_collectives() == 0) return "the black box has no room for collectives";
  library = std::make_unique<torch::Library>(torch::Library::IMPL, "c10d", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
  for (const char* name : kOperators) {
    // An operator that this torch does not have would be registered without an error, for nothing.
    if (c10::Dispatcher::singleton().findSchema({std::string("c10d::") + name, ""}))
      library->impl(name, torch::CppFunction::makeFromBoxedFunction<&dispatch>());
  }
  return nullptr;
}

void uninstall() { library.reset(); }

}  // namespace

Dispatched* dispatched_here() noexcept { return current; }

const Hook kCollectives{"collectives", install, uninstall};

}  // namespace pytracer::hooks
