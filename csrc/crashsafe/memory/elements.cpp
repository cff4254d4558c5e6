#include "crashsafe/memory/elements.h"

#include "crashsafe/platform/large.h"
#include "crashsafe/platform/safe_read.h"

#include <cstring>

namespace pytracer::crashsafe {
namespace {

constexpr uint64_t kNsLimit = 20'000'000, kFloatsNsLimit = 10'000'000;
constexpr uint32_t kMostElementBytes = 8;

// Static: the handler's stack has no room. One thread reports at a time.
PYTRACER_LARGE constinit char block[kMostElements * kMostElementBytes]{};

}  // namespace

bool ElementTime::is_left(bool is_float) const { return all.ns < kNsLimit && (!is_float || floats_ns < kFloatsNsLimit); }

void ElementTime::count(bool is_float) {
  uint64_t took = all.lap(kNsLimit);
  if (is_float) floats_ns += took;
}

uint64_t bits_at(uint64_t index, uint32_t nbytes) noexcept {
  uint64_t value = 0;
  memcpy(&value, block + index * nbytes, nbytes);
  return value;
}

bool read_elements(uint64_t from, uint64_t count, uint32_t nbytes) noexcept {
  return count <= kMostElements && nbytes <= kMostElementBytes && read_bytes(block, from, count * nbytes);
}

void Seen::include(const Elements& elements, uint64_t bits) noexcept {
  if (elements.exponent != 0) {
    if ((bits & elements.exponent) != elements.exponent) return;
    uint64_t fraction = (elements.exponent & ~(elements.exponent - 1)) - 1;
    if ((bits & fraction) == 0)
      not_numbers |= kInfinite;
    else if ((not_numbers | kInfinite) != UINT32_MAX)
      not_numbers++;
    return;
  }
  uint32_t unused = 64 - elements.nbytes * 8;
  int64_t value = elements.is_signed ? static_cast<int64_t>(bits << unused) >> unused : static_cast<int64_t>(bits);
  if (value < minimum) minimum = value;
  if (value > maximum) maximum = value;
}

// One block after the other.
bool look_at_row(Seen& seen, ElementTime& time, uint64_t from, const Elements& elements, uint64_t count) noexcept {
  for (uint64_t done = 0; done < count;) {
    uint64_t part = count - done < kMostElements ? count - done : kMostElements;
    bool is_float = elements.exponent != 0;
    if (!time.is_left(is_float) || !read_elements(from + done * elements.nbytes, part, elements.nbytes)) return false;
    for (uint64_t i = 0; i < part; i++) seen.include(elements, bits_at(i, elements.nbytes));
    done += part;
    time.count(is_float);
  }
  return true;
}

}  // namespace pytracer::crashsafe
