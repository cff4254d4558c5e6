// Autograd nodes: their history through RecordFunction's BACKWARD_FUNCTION scope (nothing per forward op), the one running
// now through torch::autograd::get_current_node(). Level "ops" adds every operator.
#include "../blackbox/layout.h"
#include "../recorder/core.h"
#include "foreign.h"
#include "hooks.h"
#include "stream.h"
#include "tensors.h"
#include "who.h"

#include <torch/csrc/autograd/function.h>  // node.h since torch 2.12

namespace pytracer::hooks {
namespace {

using blackbox::RecordKind;
at::CallbackHandle node_handle = at::INVALID_CALLBACK_HANDLE, op_handle = at::INVALID_CALLBACK_HANDLE;

// noexcept in effect: torch would turn an exception into a warning per node.
void write(RecordKind kind, const at::RecordFunction& function, bool with_inputs) noexcept {
  try {
    blackbox::NodeRecord record{};
    copy_name(record.name, function.name());
    record.sequence_nr = function.seqNr();
    note_stream(record);
    if (with_inputs)
      each_tensor(function, [&](const at::Tensor& tensor) {
        if (record.input_count < std::size(record.storages)) record.storages[record.input_count] = storage_addr(tensor);
        record.input_count++;
        follow(tensor.storage(), true);
      });
    pytracer_record(static_cast<uint32_t>(kind), &record, sizeof record);
  } catch (...) {
    pytracer_count_hook_error();
  }
}

std::unique_ptr<at::ObserverContext> on_node(const at::RecordFunction& function) {
  node_begins();
  write(RecordKind::kNode, function, true);
  return nullptr;
}
std::unique_ptr<at::ObserverContext> on_op(const at::RecordFunction& function) {
  write(RecordKind::kOp, function, false);
  return nullptr;
}

// Called by the crash handler on the crashed thread: reads, and nothing else. On a thread that torch never saw, its thread-locals
// would be allocated now, perhaps below the malloc that found the heap damaged and holds its lock: a hang instead of a death.
bool probe(pytracer_node* out) {
  if (!can_ask_for_node()) return false;
  auto node = torch::autograd::get_current_node();
  if (!node) return false;
  out->name = node_class(*node, out->is_python);
  out->sequence_nr = static_cast<int64_t>(node->sequence_nr());
  out->node = node.get();
  return true;
}

const char* install(Level level) {
  pytracer_set_node_probe(probe);
  if (level == Level::kLight) return nullptr;
  node_handle = at::addGlobalCallback(at::RecordFunctionCallback(on_node).needsInputs(true).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  if (level == Level::kOps) op_handle = at::addGlobalCallback(at::RecordFunctionCallback(on_op).scopes({at::RecordScope::FUNCTION}));
  return nullptr;
}

void uninstall() {
  pytracer_set_node_probe(nullptr);
  for (at::CallbackHandle* handle : {&node_handle, &op_handle}) {
    if (*handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(*handle);
    *handle = at::INVALID_CALLBACK_HANDLE;
  }
}

}  // namespace

const Hook kAutograd{"autograd-nodes", install, uninstall};

}  // namespace pytracer::hooks
