// The current bucket layout of a DDP Reducer.
#pragma once
#include <cstdint>
#include <vector>

struct _object;  // PyObject

namespace c10d {
class Reducer;
}

namespace pytracer::hooks {

struct BucketParameter {
  uint64_t tensor_impl;  ///< equals `parameter._cdata` in Python
  uint64_t offset_bytes;
  uint64_t nbytes;
};
struct Bucket {
  uint64_t index, addr, nbytes;
  std::vector<BucketParameter> parameters;
};

/// The Reducer of a Python object of torch.distributed; null: it has none, or a Python error is set. With the GIL held.
const c10d::Reducer* reducer_of(_object* object);

/// In order of reduction. Buckets without a buffer (sparse gradients) are left out. 7-8 us for two or three buckets.
std::vector<Bucket> buckets_of(const c10d::Reducer& reducer);

}  // namespace pytracer::hooks
