// Named ranges (USER_SCOPE): collectives as gloo:* and nccl:*, DDP's forward, FSDP's steps. Nothing per operator.
#include "../blackbox/layout.h"
#include "../recorder/core.h"
#include "hooks.h"
#include "tensors.h"

#include <algorithm>
#include <exception>

namespace pytracer::hooks {
namespace {

using blackbox::RecordKind;
constexpr const char* kBackends[] = {"gloo:", "nccl:", "ucc:", "mpi:", "xccl:"};
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

// Carried from start to end: the name may be gone by then, and a collective may end on another thread.
struct Range final : at::ObserverContext {
  bool is_collective = false;
  blackbox::CollectiveRecord collective{};
  blackbox::NodeRecord range{};
};

bool is_collective(const char* name) {
  return std::any_of(std::begin(kBackends), std::end(kBackends), [&](const char* prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; });
}

void describe(const at::RecordFunction& function, blackbox::CollectiveRecord& record) {
  copy_name(record.name, function.name());
  record.sequence_nr = pytracer_next_collective();
  each_tensor(function, [&](const at::Tensor& tensor) {
    record.nbytes += tensor.nbytes();
    if (record.tensor_count++ != 0) return;
    record.buffer_addr = reinterpret_cast<uint64_t>(tensor.const_data_ptr());  // the other one would materialize a copy-on-write tensor
    record.storage_addr = storage_addr(tensor);
    record.numel = static_cast<uint64_t>(tensor.numel());
    record.dim_count = static_cast<uint32_t>(tensor.dim());
    copy_name(record.dtype, c10::toString(tensor.scalar_type()));
    for (size_t i = 0; i < std::size(record.sizes) && i < static_cast<size_t>(tensor.dim()); i++)
      record.sizes[i] = static_cast<uint32_t>(std::min<int64_t>(tensor.size(static_cast<int64_t>(i)), 0xffffffff));
  });
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  try {
    auto range = std::make_unique<Range>();
    range->is_collective = is_collective(function.name());
    if (range->is_collective) {
      describe(function, range->collective);
      pytracer_record(static_cast<uint32_t>(RecordKind::kCollectiveStarted), &range->collective, sizeof range->collective);
    } else {
      copy_name(range->range.name, function.name());
      range->range.sequence_nr = function.seqNr();
      pytracer_record(static_cast<uint32_t>(RecordKind::kRangeBegin), &range->range, sizeof range->range);
    }
    return range;
  } catch (...) {
    pytracer_count_hook_error();
    return nullptr;
  }
}

void on_end(const at::RecordFunction&, at::ObserverContext* context) {
  auto* range = static_cast<Range*>(context);
  if (range == nullptr) return;
  if (range->is_collective) {
    // gloo ends the range of a failed collective inside its catch block (ProcessGroupGloo.cpp, AsyncWork::execute).
    bool failed = std::current_exception() != nullptr;
    auto kind = failed ? RecordKind::kCollectiveFailed : RecordKind::kCollectiveCompleted;
    pytracer_record(static_cast<uint32_t>(kind), &range->collective, sizeof range->collective);
    return;
  }
  pytracer_record(static_cast<uint32_t>(RecordKind::kRangeEnd), &range->range, sizeof range->range);
}

const char* install(Level) {
  handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end).needsInputs(true).scopes({at::RecordScope::USER_SCOPE}));
  return nullptr;
}

void uninstall() {
  if (handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace

const Hook kRanges{"collectives-and-ranges", install, uninstall};

}  // namespace pytracer::hooks
