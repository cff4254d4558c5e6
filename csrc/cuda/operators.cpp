// The operators at level "ops", once the process uses CUDA, but for those that launch nothing: where it was called, on which stream, and which device
// memory it takes. Kernels fail later than they are launched: these are the launches that may have been the one.
#include "blackbox/layout.h"
#include "core/core_cuda.h"
#include "cuda/cuda.h"
#include "hooks/support/tensors.h"

#include <ATen/detail/CUDAHooksInterface.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

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

// They make views, look at properties, or only call others: half of all operators, which would push the launches out of the ring. Sorted.
// Not those that allocate: from them on an address may be another tensor's.
constexpr std::string_view kWithoutKernel[] = {
    "_conj",      "_reshape_alias", "_unsafe_view", "alias",  "as_strided", "broadcast_to", "chunk",
    "contiguous", "detach",         "detach_",      "expand", "expand_as",  "flatten",      "is_pinned",
    "item",       "lift_fresh",     "movedim",      "narrow", "numpy_T",    "permute",      "reshape",
    "reshape_as", "resolve_conj",   "resolve_neg",  "select", "slice",      "split",        "split_with_sizes",
    "squeeze",    "squeeze_",       "swapaxes",     "t",      "to",         "transpose",    "transpose_",
    "type_as",    "unbind",         "unflatten",    "unfold", "unsqueeze",  "unsqueeze_",   "view",
    "view_as",
};
static_assert(std::is_sorted(std::begin(kWithoutKernel), std::end(kWithoutKernel)));

bool launches_nothing(const char* name) {
  constexpr std::string_view kNamespace = "aten::";
  std::string_view whole(name);
  return whole.substr(0, kNamespace.size()) == kNamespace &&
         std::binary_search(std::begin(kWithoutKernel), std::end(kWithoutKernel), whole.substr(kNamespace.size()));
}

// What stands in place of the address of memory, see DeviceOpRecord.
uint64_t memory_word(const at::Tensor& tensor) {
  uint64_t addr = hooks::storage_addr(tensor);
  if (tensor.is_cpu()) return addr != 0 ? addr | blackbox::kDeviceOpHost : 0;
  if (!tensor.is_cuda()) return 0;
  return addr != 0 || tensor.numel() == 0 ? addr : blackbox::kDeviceOpNoMemory;
}

// A copy between a device and pinned memory for which the host does not wait: copy_(self, src, non_blocking).
bool is_asynchronous_copy(const at::RecordFunction& function) {
  if (strcmp(function.name(), "aten::copy_") != 0) return false;
  auto inputs = function.inputs();
  if (inputs.size() < 3 || !inputs[0].isTensor() || !inputs[1].isTensor() || !inputs[2].isBool() || !inputs[2].toBool()) return false;
  const at::Tensor &to = inputs[0].toTensor(), &from = inputs[1].toTensor();
  if (!to.defined() || !from.defined() || to.is_cuda() == from.is_cuda()) return false;
  const at::Tensor& host = to.is_cuda() ? from : to;
  return host.is_cpu() && host.has_storage() && at::detail::getCUDAHooks().isPinnedPtr(host.storage().data());
}

// Never throws: torch would turn an exception into a warning per operator.
std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
  try {
    blackbox::DeviceOpRecord record{};
    if (launches_nothing(function.name()) || !begin(record, function.name())) return nullptr;
    record.sequence_nr = function.seqNr();
    size_t kept = 0;
    hooks::each_tensor(function, [&](const at::Tensor& tensor) {
      record.input_count++;
      uint64_t word = memory_word(tensor);
      if (word != 0 && kept < std::size(record.storages)) record.storages[kept++] = word;
    });
    if (is_asynchronous_copy(function)) record.input_count |= blackbox::kDeviceOpAsynchronous;
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
  follow_kernels(KernelsFor::kOperators, follow);
}

}  // namespace pytracer::cuda
