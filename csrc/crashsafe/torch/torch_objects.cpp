#include "crashsafe/torch/torch_objects.h"

#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_objects.h"

namespace pytracer::crashsafe {
namespace {

constexpr int kBases = 12;

TorchOffsets known{};
const TorchOffsets* torch = nullptr;

}  // namespace

void trust_torch(const TorchOffsets& offsets) noexcept {
  known = offsets;
  torch = &known;
}
void distrust_torch() noexcept { torch = nullptr; }
const TorchOffsets* torch_offsets() noexcept { return torch; }

bool look_at_impl(uint64_t impl, TensorView& out) noexcept {
  out.impl = impl;
  return impl != 0 && read_value(out.storage_impl, impl + torch->impl_storage) && out.storage_impl != 0 &&
         read_value(out.base, out.storage_impl + torch->storage_data) && read_value(out.numel, impl + torch->impl_numel) &&
         read_value(out.offset, impl + torch->impl_offset) && read_value(out.meta, impl + torch->impl_meta);
}

bool look_at_tensor(uint64_t object, TensorView& out) noexcept { return look_at_impl(word_at(object + torch->object_impl), out); }

uint64_t base_of_word(uint64_t word) noexcept {
  TensorView tensor{};
  bool impl = word % alignof(uint64_t) == 0 && word_at(word) == torch->impl_vtable && look_at_impl(word, tensor);
  return impl ? tensor.base : 0;
}

bool derives_from(uint64_t type, uint64_t base) noexcept {
  for (int i = 0; i < kBases && type != 0; i++, type = word_at(type + python_objects()->type_base))
    if (type == base) return true;
  return false;
}

}  // namespace pytracer::crashsafe
