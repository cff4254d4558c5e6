#include "recorded_environment.h"

#include <cstddef>
#include <cstring>
#include <iterator>

namespace pytracer::recorder {
namespace {

#include "environment_names.inc"

// As strcmp(), with the entry's name ending at its '='.
int compare(const char* entry, const char* name) {
  for (; *entry != 0 && *entry != '=' && *entry == *name; entry++) name++;
  char c = *entry == '=' ? '\0' : *entry;
  return static_cast<unsigned char>(c) - static_cast<unsigned char>(*name);
}

}  // namespace

bool is_recorded(const char* entry) noexcept {
  if (strchr(entry, '=') == nullptr) return false;
  size_t low = 0, high = std::size(kEnvironmentNames);  // hundreds of names, and every process asks for each variable
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = compare(entry, kEnvironmentNames[middle]);
    if (order == 0) return true;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return false;
}

}  // namespace pytracer::recorder
