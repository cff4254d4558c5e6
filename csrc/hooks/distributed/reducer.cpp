#include "hooks/distributed/reducer.h"

#include <pybind11/conduit/pybind11_conduit_v1.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace pytracer::hooks {

// By the protocol that pybind11 has for libraries that were built with another pybind11, or for another CPython.
const c10d::Reducer* reducer_of(PyObject* object) { return pybind11_conduit_v1::get_type_pointer_ephemeral<c10d::Reducer>(object); }

std::vector<Bucket> buckets_of(const c10d::Reducer& reducer) {
  std::vector<Bucket> out;
  // false: the tensors themselves; by default it would return fresh zeros
  for (c10d::GradBucket& bucket : reducer.get_grad_buckets(false)) {
    const at::Tensor& buffer = bucket.getBufferRef();
    if (!buffer.defined() || !buffer.has_storage()) continue;
    Bucket entry{bucket.getIndex(), reinterpret_cast<uint64_t>(buffer.data_ptr()), static_cast<uint64_t>(buffer.nbytes()), {}};
    auto gradients = bucket.getGradients();
    auto parameters = bucket.getParameters();
    for (size_t i = 0; i < parameters.size() && i < gradients.size(); i++) {
      auto addr = reinterpret_cast<uint64_t>(gradients[i].data_ptr());
      entry.parameters.push_back(
          {reinterpret_cast<uint64_t>(parameters[i].unsafeGetTensorImpl()), addr - entry.addr, static_cast<uint64_t>(gradients[i].nbytes())});
    }
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace pytracer::hooks
