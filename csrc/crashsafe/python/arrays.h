// Arrays of NumPy by checked reads: PyArrayObject_fields of its C API (numpy/ndarraytypes.h), whose first members have not moved from
// NumPy 1.0 to 2.4. Nothing of NumPy is called.
#pragma once
#include <cstdint>

namespace pytracer::crashsafe {

/// An array as it is now. `strides` are in bytes, and negative where it is flipped; of the first kMost dimensions.
struct ArrayView {
  static constexpr uint32_t kMost = 4;
  static constexpr int32_t kNoPlainType = -1;
  uint64_t data;
  uint32_t dimensions;
  int32_t type_number;  ///< NPY_TYPES; kNoPlainType of numbers whose bytes are swapped
  int64_t shape[kMost], strides[kMost];
};

/// Whether a type is NumPy's array, or derives from it, by its name.
bool is_array_type(uint64_t type) noexcept;

/// False when it cannot be read, or is no such array.
bool look_at_array(uint64_t object, ArrayView& out) noexcept;

}  // namespace pytracer::crashsafe
