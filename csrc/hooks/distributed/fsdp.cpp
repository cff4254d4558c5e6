// FSDP2's own operators (torch 2.11 to 2.15, _fully_shard/_fsdp_collectives.py), wrapped as c10d's are: addresses of unsharded
// parameters and gradients. The enclosing range identifies the unit, their order the parameter.
#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/hooks.h"
#include "hooks/support/tensors.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <string>
#include <vector>

namespace pytracer::hooks {
namespace {

using blackbox::ScopedTensor;
using blackbox::TensorRole;

struct Operator {
  const char* name;
  const char* argument;  // the tensors to note
  TensorRole role;
};
constexpr Operator kCopyOut{"split_with_sizes_copy", "out", TensorRole::kUnshardedParameter};
constexpr Operator kCopyIn{"chunk_cat", "tensors", TensorRole::kUnshardedGradient};
constexpr Operator kMixedCopyIn{"chunk_cat_mixed_dtype", "tensors", TensorRole::kUnshardedGradient};  // since torch 2.15, in its place

void note(const Operator& noted, const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    if (arguments[i].name() != noted.argument) continue;
    const c10::IValue& value = stack[stack.size() - arguments.size() + i];
    if (!value.isTensorList() || pytracer_open_scoped_tensors() == 0) return;
    std::vector<ScopedTensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (!tensor.defined() || !tensor.has_storage() || tensor.is_meta()) return;  // traced, not executed
      ScopedTensor item{};
      item.addr = reinterpret_cast<uint64_t>(tensor.const_data_ptr());
      item.nbytes = tensor.nbytes();
      tensors.push_back(item);
    }
    pytracer_scoped_tensors(static_cast<uint32_t>(noted.role), tensors.data(), tensors.size());
    return;
  }
}

template <const Operator& kNoted>
void dispatch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  try {
    note(kNoted, op, *stack);
  } catch (...) {
    pytracer_count_hook_error();
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect), stack);
}

std::unique_ptr<torch::Library> library;

const char* install(Level) {
  library = std::make_unique<torch::Library>(torch::Library::IMPL, "fsdp", c10::DispatchKey::BackendSelect, __FILE__, __LINE__);
  // They are defined when torch.distributed.fsdp is imported, which may be later or never.
  library->impl(kCopyOut.name, torch::CppFunction::makeFromBoxedFunction<&dispatch<kCopyOut>>());
  library->impl(kCopyIn.name, torch::CppFunction::makeFromBoxedFunction<&dispatch<kCopyIn>>());
  library->impl(kMixedCopyIn.name, torch::CppFunction::makeFromBoxedFunction<&dispatch<kMixedCopyIn>>());
  return nullptr;
}

void uninstall() { library.reset(); }

}  // namespace

const Hook kFsdp{"fsdp", install, uninstall};

}  // namespace pytracer::hooks
