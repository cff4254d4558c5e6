#include "crashsafe/platform/process_status.h"

#include "crashsafe/platform/open_file.h"

#include <cstring>

namespace pytracer::crashsafe {
namespace {

// The digits after "\n<name>:\t"; null where there is no such line. `text` ends with a zero.
const char* value_of(const char* text, const char* name) {
  size_t length = strlen(name);
  for (; *text != 0; text++)
    if (text[0] == '\n' && memcmp(text + 1, name, length) == 0) return text + 1 + length;
  return nullptr;
}

uint64_t number_at(const char* at, unsigned base) {
  uint64_t value = 0;
  for (;; at++) {
    unsigned digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10u : base;
    if (digit >= base) return value;
    value = value * base + digit;
  }
}

}  // namespace

ProcessStatus read_status(const char* path) noexcept {
  constexpr size_t kMost = 4096, kLongestName = 32;
  char text[kMost + kLongestName] = {};  // a name that is compared at the very end stays inside
  ProcessStatus status;
  OpenFile file(path);
  status.error = file.error();
  if (file.opened()) file.read(text, kMost - 1);
  if (const char* at = value_of(text, "TracerPid:\t")) status.debugged = number_at(at, 10) != 0;
  if (const char* at = value_of(text, "SigBlk:\t")) status.blocked = number_at(at, 16);
  const char* filters = value_of(text, "Seccomp_filters:\t");
  if (filters == nullptr) filters = value_of(text, "Seccomp:\t");
  if (filters != nullptr) status.filters = static_cast<int>(number_at(filters, 10));
  return status;
}

}  // namespace pytracer::crashsafe
