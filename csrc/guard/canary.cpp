#include "guard/canary.h"

#include <cstring>

namespace pytracer::guard {
namespace {

constexpr unsigned char kCanary = 0xA5;

}  // namespace

void fill_canary(char* from, const char* to) noexcept {
  if (from < to) memset(from, kCanary, static_cast<size_t>(to - from));
}

Damage check_canary(const char* from, const char* to, const char* base) noexcept {
  auto changed = [](const char* at) { return static_cast<unsigned char>(*at) != kCanary; };
  Damage damage;
  const char* first = from;
  while (first < to && !changed(first)) first++;
  if (first >= to) return damage;
  const char* last = to - 1;
  while (!changed(last)) last--;
  damage.offset = first - base;
  damage.nbytes = static_cast<uint32_t>(last - first + 1);
  memcpy(damage.bytes, first, damage.nbytes < sizeof damage.bytes ? damage.nbytes : sizeof damage.bytes);
  return damage;
}

}  // namespace pytracer::guard
