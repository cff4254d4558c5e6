// The numbers in memory that a tensor or an array has: the least and the largest, and how many are none.
#pragma once
#include "crashsafe/platform/sys.h"

#include <cstdint>

namespace pytracer::crashsafe {

constexpr uint32_t kMostElements = 4096, kMostInARow = 1 << 20;  // with gaps, and without
constexpr uint32_t kInfinite = 1u << 31;

// Time that was worked, not waited for a processor: on a busy machine a thread stands still for longer than the search takes. So a lap
// counts for a part of the limit at most. Without a system call for the thread's own clock, which a sandbox may refuse.
struct Spent {
  static constexpr uint64_t kMostInterruptions = 4;  // that use up a limit, however long they are
  uint64_t since_ns, ns;

  void begin() { since_ns = now_ns(); }

  uint64_t lap(uint64_t limit_ns) {
    uint64_t now = now_ns(), took = now - since_ns;
    if (took > limit_ns / kMostInterruptions) took = limit_ns / kMostInterruptions;
    since_ns = now;
    ns += took;
    return took;
  }
};

/// How the elements of a data type are looked at. `exponent`: its bits in a float, all set where it is NaN or infinite; 0 for integers.
struct Elements {
  uint32_t nbytes;
  bool is_signed;
  uint64_t exponent;
};

/// What was seen: of integers the extremes; of floats as Argument.not_numbers in layout.h.
struct Seen {
  int64_t minimum = INT64_MAX, maximum = INT64_MIN;
  uint32_t not_numbers = 1;

  void include(const Elements& elements, uint64_t bits) noexcept;
};

/// The time that may be spent on elements. Integers may be indices, and are worth more than floats.
struct ElementTime {
  Spent all;
  uint64_t floats_ns;

  bool is_left(bool is_float) const;
  void count(bool is_float);
};

/// The element `index` of those that read_elements() read last.
uint64_t bits_at(uint64_t index, uint32_t nbytes) noexcept;

/// At most kMostElements of them; false: they cannot be read.
bool read_elements(uint64_t from, uint64_t count, uint32_t nbytes) noexcept;

/// Side by side, of any number. False: not all could be read in the time.
bool look_at_row(Seen& seen, ElementTime& time, uint64_t from, const Elements& elements, uint64_t count) noexcept;

}  // namespace pytracer::crashsafe
