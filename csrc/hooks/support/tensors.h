// Addresses of the tensors among a RecordFunction's inputs.
#pragma once
#ifndef NDEBUG
#error "torch is built with NDEBUG, which is part of at::RecordFunction's layout: build with -DNDEBUG"
#endif
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <cstring>

namespace pytracer::hooks {

/// Calls visit(tensor) for each defined tensor with storage, lists included.
template <class Visit>
void each_tensor(const at::RecordFunction& function, Visit visit) {
  auto one = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage()) visit(tensor);
  };
  for (const c10::IValue& value : function.inputs()) {
    if (value.isTensor())
      one(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) one(tensor);
  }
}

inline uint64_t storage_addr(const at::Tensor& tensor) { return reinterpret_cast<uint64_t>(tensor.storage().data()); }

/// Copies a name: those of backward and user scopes point into a temporary.
template <size_t N>
void copy_name(char (&to)[N], const char* from) {
  size_t n = strnlen(from, N - 1);
  memcpy(to, from, n);
  memset(to + n, 0, N - n);
}

}  // namespace pytracer::hooks
