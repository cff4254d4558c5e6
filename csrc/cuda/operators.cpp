// Every operator at level "ops", once the process uses CUDA: where it was called, on which stream, and which device memory it takes. Kernels
// fail later than they are launched: these are the launches that may have been the one.
#include "blackbox/layout.h"
#include "core/core_cuda.h"
#include "cuda/cuda.h"
#include "hooks/support/tensors.h"

#include <algorithm>
#include <iterator>

namespace pytracer::cuda {
namespace {

constexpr uint32_t kKind = static_cast<uint32_t>(blackbox::RecordKind::kDeviceOp);

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

// False in a child that was forked, where the hook of all operators records.
bool begin(blackbox::DeviceOpRecord& record, const char* name) {
  pytracer_stream here{};
  if (pytracer_current_stream(&here) == 0) return false;
  hooks::copy_name(record.name, name);
  pytracer_call_site site = call_site();
  record.site_id = site.id;
  record.site_where = site.where;
  record.device = here.device + 1;
  record.stream = here.stream;
  return true;
}

// Never throws: torch would turn an exception into a warning per operator.
std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  try {
    blackbox::DeviceOpRecord record{};
    if (!begin(record, function.name())) return nullptr;
    record.sequence_nr = function.seqNr();
    size_t kept = 0;
    hooks::each_tensor(function, [&](const at::Tensor& tensor) {
      record.input_count++;
      if (tensor.is_cuda() && kept < std::size(record.storages)) record.storages[kept++] = hooks::storage_addr(tensor);
    });
    pytracer_record(kKind, &record, sizeof record);
  } catch (...) {
    pytracer_count_hook_error();
  }
  return nullptr;
}

}  // namespace

void record_launch(const char* name, const uint64_t* storages, uint32_t count) noexcept {
  blackbox::DeviceOpRecord record{};
  if (!begin(record, name)) return;
  record.sequence_nr = -1;
  record.input_count = count;
  std::copy_n(storages, std::min<size_t>(count, std::size(record.storages)), record.storages);
  pytracer_record(kKind, &record, sizeof record);
}

void follow_operators(bool follow) {
  if (follow == (handle != at::INVALID_CALLBACK_HANDLE)) return;
  if (follow) {
    handle = at::addGlobalCallback(at::RecordFunctionCallback(on_operator).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  } else {
    at::removeCallback(handle);
    handle = at::INVALID_CALLBACK_HANDLE;
  }
  pytracer_follow_device_operators(follow);
}

}  // namespace pytracer::cuda
