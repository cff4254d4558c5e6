// Names and paths composed in a buffer, without stdio.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pytracer::crashsafe {

/// Cut off where the room ends.
class BoundedText {
 public:
  BoundedText(char* to, size_t room) noexcept : to_(to), room_(room) { to_[0] = 0; }
  BoundedText& add(const char* text) noexcept {
    while (*text != 0 && used_ + 1 < room_) to_[used_++] = *text++;
    to_[used_] = 0;
    return *this;
  }
  BoundedText& add(uint32_t value) noexcept {
    char digits[12];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do digits[--at] = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    return add(digits + at);
  }

 private:
  char* to_;
  size_t room_, used_ = 0;
};

}  // namespace pytracer::crashsafe
