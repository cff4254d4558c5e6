// Tensors and autograd nodes by checked reads. Their members are private and move between versions: the offsets are found
// with known objects (core/probe/probe_torch_layout.cpp), and nothing is followed where that failed.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

/// Offsets of members, in bytes.
struct TorchOffsets {
  uint64_t tensor_type, function_type;  ///< addresses of the Python types that all tensors, and all nodes in Python, derive from
  uint64_t impl_vtable;                 ///< of a plain TensorImpl: distinguishes it from other words
  uint32_t object_impl;                 ///< Python object -> TensorImpl
  uint32_t impl_storage, impl_numel, impl_offset, impl_meta;
  uint32_t storage_data;
  uint32_t meta_grad, meta_function;  ///< AutogradMeta -> TensorImpl of the gradient, -> node
  uint32_t function_node;             ///< Python object -> node
  uint32_t node_edges, edge_bytes;    ///< node -> vector of edges, and how far those lie apart; 0: unknown
  bool chunks_are_sized;              ///< malloc keeps the size of a block in the word before it
  uint32_t impl_sizes, impl_dtype;    ///< TensorImpl -> its SizesAndStrides, its data type and device; 0: unknown
  uint64_t undefined_impl;            ///< the TensorImpl of every undefined tensor; 0: unknown
  bool values;                        ///< whether elements of tensors may be looked at
};

void trust_torch(const TorchOffsets& offsets) noexcept;
void distrust_torch() noexcept;

/// Null when nothing is trusted.
const TorchOffsets* torch_offsets() noexcept;

/// A tensor as it is now. `offset` and `numel` are in elements.
struct TensorView {
  uint64_t impl, storage_impl, base, numel, offset, meta;
};

/// False when it has no storage, or cannot be read.
bool look_at_impl(uint64_t impl, TensorView& out) noexcept;
bool look_at_tensor(uint64_t object, TensorView& out) noexcept;

/// Base address of the storage of the plain TensorImpl at `word`; 0: there is none, or it has no storage. For words that may be anything.
uint64_t base_of_word(uint64_t word) noexcept;

/// Whether a type is `base`, or derives from it.
bool derives_from(uint64_t type, uint64_t base) noexcept;

}  // namespace pytracer::crashsafe
