#include "crashsafe/python/arrays.h"

#include "crashsafe/platform/safe_read.h"
#include "crashsafe/python/python_objects.h"

#include <cstring>

namespace pytracer::crashsafe {
namespace {

constexpr int kBases = 4;  // numpy.memmap and the classes of programs derive directly
constexpr uint32_t kMostDimensions = 64;
constexpr char kSwapped = '>';  // bytes in the order of another machine
constexpr char kName[] = "numpy.ndarray";

// Behind the object's header: data, nd, dimensions, strides, base, descr. PyArray_Descr: typeobj, then four chars (kind, type,
// byteorder, flags), then type_num.
constexpr uint64_t kData = 0, kDimensions = 8, kShape = 16, kStrides = 24, kDescription = 40, kByteOrder = 10, kTypeNumber = 12;

bool is_named_array(uint64_t type) {
  char name[sizeof kName] = {};
  uint64_t at = word_at(type + static_cast<uint64_t>(python_objects()->type_name));
  return at != 0 && read_bytes(name, at, sizeof name) && memcmp(name, kName, sizeof kName) == 0;
}

}  // namespace

bool is_array_type(uint64_t type) noexcept {
  for (int i = 0; i < kBases && type != 0; i++, type = word_at(type + static_cast<uint64_t>(python_objects()->type_base)))
    if (is_named_array(type)) return true;
  return false;
}

bool look_at_array(uint64_t object, ArrayView& out) noexcept {
  const uint64_t header = static_cast<uint64_t>(python_objects()->size);  // an array has no ob_size
  const uint64_t fields = object + header;
  int32_t dimensions = 0;
  char byte_order = 0;
  uint64_t description = 0, shape = 0, strides = 0;
  memset(static_cast<void*>(&out), 0, sizeof out);
  if (!read_value(out.data, fields + kData) || !read_value(dimensions, fields + kDimensions) || dimensions < 0 ||
      static_cast<uint32_t>(dimensions) > kMostDimensions || !read_value(description, fields + kDescription) ||
      !read_value(out.type_number, description + header + kTypeNumber) || !read_value(byte_order, description + header + kByteOrder))
    return false;
  if (byte_order == kSwapped) out.type_number = ArrayView::kNoPlainType;
  out.dimensions = static_cast<uint32_t>(dimensions);
  uint64_t kept = (out.dimensions < ArrayView::kMost ? out.dimensions : ArrayView::kMost) * sizeof(int64_t);
  if (kept == 0) return true;
  return read_value(shape, fields + kShape) && read_value(strides, fields + kStrides) && read_bytes(out.shape, shape, kept) &&
         read_bytes(out.strides, strides, kept);
}

}  // namespace pytracer::crashsafe
