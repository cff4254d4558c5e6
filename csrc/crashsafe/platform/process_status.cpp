#include "crashsafe/platform/process_status.h"

#include "crashsafe/platform/open_file.h"
#include "crashsafe/text/bounded_text.h"

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

// Fields 3 and 22. The name, field 2, may hold anything: it ends at the last parenthesis.
ProcessStart read_start(const char* path) noexcept {
  char text[1024];
  OpenFile file(path);
  long got = file.opened() ? file.read(text, sizeof text - 1) : 0;
  size_t n = got > 0 ? static_cast<size_t>(got) : 0, at = n;
  text[n] = 0;
  while (at > 0 && text[at - 1] != ')') at--;
  if (at == 0 || at + 2 > n) return {};
  char state = text[at + 1];
  for (int field = 2; at < n && field < 22; at++) field += text[at] == ' ';
  return {number_at(text + at, 10), state};
}

int pid_of_descriptor(int descriptor) noexcept {
  if (descriptor < 0) return 0;
  char path[48], text[512];
  BoundedText(path, sizeof path).add("/proc/self/fdinfo/").add(static_cast<uint32_t>(descriptor));
  OpenFile file(path);
  long got = file.opened() ? file.read(text, sizeof text - 1) : 0;
  text[got > 0 ? got : 0] = 0;
  const char* at = value_of(text, "Pid:\t");
  return at != nullptr ? static_cast<int>(number_at(at, 10)) : 0;
}

}  // namespace pytracer::crashsafe
