#include "crashsafe/python/array_values.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/python/arrays.h"
#include "crashsafe/torch/torch_objects.h"

#include <cstring>
#include <string_view>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr std::string_view kData = ".ctypes.data";
constexpr uint32_t kLongestText = 160, kLeastRoom = 4096;

// NPY_TYPES: bool, then signed and unsigned by turns, then float and double; on Linux a long has 64 bits.
bool elements_of(int32_t type, Elements& elements) {
  constexpr uint64_t kFloat = 0x7f80'0000, kDouble = 0x7ff0'0000'0000'0000;
  static constexpr Elements kTypes[] = {{1, false, 0}, {1, true, 0},       {1, false, 0},      {2, true, 0},  {2, false, 0},
                                        {4, true, 0},  {4, false, 0},      {8, true, 0},       {8, false, 0}, {8, true, 0},
                                        {8, false, 0}, {4, false, kFloat}, {8, false, kDouble}};
  if (type < 0 || static_cast<size_t>(type) >= sizeof kTypes / sizeof kTypes[0]) return false;
  elements = kTypes[type];
  return true;
}

// Their number, where they lie in a row; 0: they do not, or there are too many.
uint64_t count_in_a_row(const ArrayView& array, uint32_t nbytes) {
  if (array.dimensions > ArrayView::kMost) return 0;
  uint64_t count = 1;
  for (uint32_t i = array.dimensions; i-- > 0;) {
    if (array.shape[i] < 1 || array.shape[i] > kMostInARow) return 0;
    if (array.shape[i] > 1 && array.strides[i] != static_cast<int64_t>(count * nbytes)) return 0;
    count *= static_cast<uint64_t>(array.shape[i]);
    if (count > kMostInARow) return 0;
  }
  return count;
}

// Under the expression of the array, and what follows it.
bool write(const Holder& array, std::string_view behind, uint64_t value) {
  CrashHeader& crash = *g_box.crash.data;
  uint32_t kept = array.text_nbytes - static_cast<uint32_t>(kData.size());
  if (crash.holder_count >= g_box.referrers.items || g_box.arena.items - crash.arena_used < kLeastRoom || kept + behind.size() > kLongestText) {
    crash.holders_truncated = 1;
    return false;
  }
  char* text = g_box.arena.data + crash.arena_used;
  memcpy(text, g_box.arena.data + array.text, kept);
  memcpy(text + kept, behind.data(), behind.size());
  uint32_t nbytes = kept + static_cast<uint32_t>(behind.size());
  g_box.referrers.data[crash.holder_count++] = {array.kind, array.frame, 0, array.object, crash.arena_used, nbytes, value, 0, 0};
  crash.arena_used += nbytes;
  return true;
}

bool is_array(const Holder& holder) {
  if (holder.kind != static_cast<uint32_t>(HolderKind::kNumber) || holder.text_nbytes <= kData.size()) return false;
  return std::string_view{g_box.arena.data + holder.text, holder.text_nbytes}.ends_with(kData);
}

void look_at(const Holder& holder, ElementTime& time, bool floats, bool (*may_be_read)(uint64_t)) {
  ArrayView array{};
  Elements elements{};
  if (!look_at_array(holder.object, array) || !elements_of(array.type_number, elements) || (elements.exponent != 0) != floats) return;
  uint64_t count = count_in_a_row(array, elements.nbytes);
  if (count == 0 || !may_be_read(array.data & ~7ull)) return;
  Seen seen{};
  time.all.begin();
  if (!look_at_row(seen, time, array.data, elements, count)) return;
  if (floats) {
    if (write(holder, ".isnan().sum()", (seen.not_numbers & ~kInfinite) - 1)) write(holder, ".isinf().any()", seen.not_numbers >> 31);
  } else if (write(holder, ".min()", static_cast<uint64_t>(seen.minimum))) {
    write(holder, ".max()", static_cast<uint64_t>(seen.maximum));
  }
}

}  // namespace

void write_array_values(ElementTime& time, bool (*may_be_read)(uint64_t)) noexcept {
  if (torch_offsets() == nullptr || !torch_offsets()->values) return;
  uint32_t count = g_box.crash.data->holder_count;
  for (bool floats : {false, true})
    for (uint32_t i = 0; i < count; i++)
      if (is_array(g_box.referrers.data[i])) look_at(g_box.referrers.data[i], time, floats, may_be_read);
}

}  // namespace pytracer::crashsafe
