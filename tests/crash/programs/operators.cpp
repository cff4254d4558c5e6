// Operators of an extension: one uses an index unchecked, one the memory of any tensor, one crashes for another reason.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace {

at::Tensor look_up(const at::Tensor& table, const at::Tensor& rows) {
  at::Tensor out = at::empty({rows.numel()}, table.options());
  const float* from = table.data_ptr<float>();
  const int64_t* row = rows.data_ptr<int64_t>();
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < rows.numel(); i++) to[i] = from[row[i]];
  return out;
}

at::Tensor scale(const at::Tensor& data, const at::Tensor& weight) {
  at::Tensor out = at::empty({1}, data.options());
  *out.data_ptr<float>() = *data.data_ptr<float>() * *weight.data_ptr<float>();
  return out;
}

at::Tensor stray(const at::Tensor& data, const at::Tensor&) {
  *reinterpret_cast<volatile int*>(0x7000deadbee8) = 1;
  return data;
}

TORCH_LIBRARY(operators, library) {
  library.def("look_up", &look_up);
  library.def("scale", &scale);
  library.def("stray", &stray);
}

}  // namespace
