#include "core/probe/probe_torch_layout.h"

#include "crashsafe/python/python_objects.h"
#include "crashsafe/torch/torch_objects.h"

#include <dlfcn.h>
#include <malloc.h>

namespace pytracer::core {
namespace {

using crashsafe::TorchOffsets;
using crashsafe::word_at;

constexpr uint32_t kObjectBytes = 64, kImplBytes = 256, kStorageBytes = 96, kMetaBytes = 256, kNodeBytes = 512;

// First word of an object that holds `value`; `limit` when none does.
uint32_t find(uint64_t object, uint64_t value, uint32_t limit) {
  uint32_t at = 8;  // the first word is a vtable or a reference count
  while (at < limit && word_at(object + at) != value) at += 8;
  return at;
}

// Behind a pointer: AutogradMeta of a TensorImpl, the first edge of a node.
bool find_behind(uint64_t object, uint64_t value, uint32_t limit, uint32_t limit_behind, uint32_t first_behind, uint32_t& outer, uint32_t& inner) {
  for (outer = 8; outer < limit; outer += 8) {
    uint64_t behind = word_at(object + outer);
    if (behind % 8 != 0) continue;
    for (inner = first_behind; inner < limit_behind; inner += 8)
      if (word_at(behind + inner) == value) return true;
  }
  return false;
}

bool keeps(uint64_t node, uint64_t data) {
  for (uint32_t at = 8; at < kNodeBytes; at += 8)
    if (crashsafe::base_of_word(word_at(node + at)) == data) return true;
  return false;
}

// c10's SizesAndStrides: their number, then sizes and strides; more than 5 of each lie elsewhere.
bool sizes_fit(const pytracer_torch_probe& probe, uint32_t at) {
  uint64_t shallow = probe.impl + at, deep = probe.deep_impl + at, elsewhere = word_at(deep + 8);
  return word_at(shallow) == 2 && word_at(shallow + 8) == probe.rows && word_at(shallow + 16) == probe.columns &&
         word_at(shallow + 48) == probe.columns && word_at(shallow + 56) == 1 && word_at(deep) == 7 && word_at(elsewhere + 48) == 2 &&
         word_at(elsewhere + 56) == 64;
}

// The data type, of 2 bytes, and behind it the device: its type, its index, whether there is one. On the CPU: 0, -1, 1.
bool dtype_fits(uint64_t impl, uint32_t at, uint64_t dtype) { return (word_at(impl + at) & 0xffffffffff) == (0x01ff000000 | dtype); }

// Optional: without them the arguments of an operator are not described, and everything else is.
void learn_shape(const pytracer_torch_probe& probe, TorchOffsets& out) {
  constexpr uint64_t kHalf = 5, kFloat = 6;
  uint32_t sizes = 8, dtype = 8;
  while (sizes < kImplBytes && !sizes_fit(probe, sizes)) sizes += 8;
  while (dtype < kImplBytes && !(dtype_fits(probe.impl, dtype, kFloat) && dtype_fits(probe.deep_impl, dtype, kHalf))) dtype += 2;
  bool found = sizes < kImplBytes && dtype < kImplBytes;
  out.impl_sizes = found ? sizes : 0;
  out.impl_dtype = found ? dtype : 0;
  out.undefined_impl = probe.undefined_impl;
  out.values = probe.values != 0;
}

bool shape_fits(const pytracer_torch_probe& probe, const TorchOffsets& torch) {
  constexpr uint64_t kFloat = 6;
  return torch.impl_sizes == 0 || (sizes_fit(probe, torch.impl_sizes) && dtype_fits(probe.impl, torch.impl_dtype, kFloat));
}

uint64_t bytes_of_edges(uint64_t node, const TorchOffsets& torch) { return word_at(node + torch.node_edges + 8) - word_at(node + torch.node_edges); }

// A pointer to the node and a number; until torch 2.12 the pointer is a std::shared_ptr, of two words.
void learn_edges(const pytracer_torch_probe& probe, uint64_t node, TorchOffsets& out) {
  constexpr uint32_t kEdge = 16, kSharedEdge = 24;
  uint64_t nbytes = bytes_of_edges(node, out);
  out.edge_bytes = probe.edges == 0 ? 0 : nbytes == probe.edges * kEdge ? kEdge : nbytes == probe.edges * kSharedEdge ? kSharedEdge : 0;
}

bool learn(const pytracer_torch_probe& probe, TorchOffsets& out) {
  uint32_t unused = 0;
  out.tensor_type = probe.tensor_type;
  out.function_type = probe.function_type;
  out.impl_vtable = word_at(probe.impl);
  out.object_impl = find(probe.object, probe.impl, kObjectBytes);
  out.impl_storage = find(probe.impl, probe.storage_impl, kImplBytes);
  out.impl_numel = find(probe.impl, probe.numel, kImplBytes);
  out.impl_offset = find(probe.impl, probe.offset, kImplBytes);
  out.storage_data = find(probe.storage_impl, probe.data, kStorageBytes);
  if (out.object_impl == kObjectBytes || out.impl_storage == kImplBytes || out.impl_numel == kImplBytes || out.impl_offset == kImplBytes ||
      out.storage_data == kStorageBytes)
    return false;
  if (!find_behind(probe.leaf_impl, probe.grad_impl, kImplBytes, kMetaBytes, 8, out.impl_meta, out.meta_grad)) return false;
  // A node's Python object holds the node right behind its head, as a tensor's holds the TensorImpl.
  out.function_node = out.object_impl;
  uint64_t node = word_at(probe.function + out.function_node), next = word_at(probe.next_function + out.function_node);
  uint64_t meta = word_at(probe.result_impl + out.impl_meta);
  if (node == 0 || next == 0 || meta == 0) return false;
  learn_shape(probe, out);
  out.meta_function = find(meta, node, kMetaBytes);
  if (out.meta_function == kMetaBytes || !find_behind(node, next, kNodeBytes, 8, 0, out.node_edges, unused)) return false;
  learn_edges(probe, node, out);
  return true;
}

bool fits(const pytracer_torch_probe& probe, const TorchOffsets& torch) {
  crashsafe::TensorView tensor{}, grad{};
  uint64_t node = word_at(probe.function + torch.function_node);
  return shape_fits(probe, torch) && crashsafe::derives_from(crashsafe::type_of(probe.object), torch.tensor_type) &&
         crashsafe::look_at_tensor(probe.object, tensor) && tensor.impl == probe.impl && tensor.storage_impl == probe.storage_impl &&
         tensor.base == probe.data && tensor.numel == probe.numel && tensor.offset == probe.offset &&
         crashsafe::look_at_impl(probe.leaf_impl, grad) && word_at(grad.meta + torch.meta_grad) == probe.grad_impl &&
         word_at(word_at(probe.result_impl + torch.impl_meta) + torch.meta_function) == node &&
         word_at(word_at(node + torch.node_edges)) == word_at(probe.next_function + torch.function_node) &&
         (torch.edge_bytes == 0 || bytes_of_edges(node, torch) == probe.edges * torch.edge_bytes) && keeps(node, probe.saved_data);
}

// glibc writes the size of a block before it; another malloc may not, and then the end of a node is not known.
bool chunk_is_sized(uint64_t node) {
  auto usable = reinterpret_cast<size_t (*)(void*)>(dlsym(RTLD_DEFAULT, "malloc_usable_size"));
  return usable != nullptr && usable(reinterpret_cast<void*>(node)) == (word_at(node - 8) & ~7ull) - 8;
}

}  // namespace

bool probe_torch_layout(const pytracer_torch_probe& first, const pytracer_torch_probe& second) noexcept {
  TorchOffsets offsets{};
  if (crashsafe::python_objects() == nullptr || !learn(first, offsets)) return false;
  offsets.chunks_are_sized =
      chunk_is_sized(word_at(first.function + offsets.function_node)) && chunk_is_sized(word_at(second.function + offsets.function_node));
  crashsafe::trust_torch(offsets);
  bool right = fits(first, offsets) && fits(second, offsets);
  if (!right) crashsafe::distrust_torch();
  return right;
}

}  // namespace pytracer::core
