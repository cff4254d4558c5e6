#include "core/process/recorded_environment.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

namespace pytracer::core {
namespace {

#include "core/process/environment_names.inc"

constexpr size_t kNames = std::size(kEnvironmentNames);
constexpr size_t kTextBytes = [] {
  size_t nbytes = 0;
  for (const char* name : kEnvironmentNames) nbytes += __builtin_strlen(name) + 1;
  return nbytes;
}();

// One text and offsets: pointers would be relocated in every process that starts, in pages that each of them then has to copy.
struct Names {
  char text[kTextBytes] = {};
  uint16_t at[kNames] = {};
  constexpr Names() {
    size_t used = 0;
    for (size_t i = 0; i < kNames; i++) {
      at[i] = static_cast<uint16_t>(used);
      for (const char* c = kEnvironmentNames[i]; *c != 0; c++) text[used++] = *c;
      used++;
    }
  }
};
constexpr Names kPacked;
static_assert(kTextBytes < UINT16_MAX);

// As strcmp(), with the entry's name ending at its '='.
int compare(const char* entry, const char* name) {
  for (; *entry != 0 && *entry != '=' && *entry == *name; entry++) name++;
  char c = *entry == '=' ? '\0' : *entry;
  return static_cast<unsigned char>(c) - static_cast<unsigned char>(*name);
}

}  // namespace

bool is_recorded(const char* entry) noexcept {
  if (strchr(entry, '=') == nullptr) return false;
  size_t low = 0, high = kNames;  // hundreds of names, compared with each variable of every process
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = compare(entry, kPacked.text + kPacked.at[middle]);
    if (order == 0) return true;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return false;
}

}  // namespace pytracer::core
