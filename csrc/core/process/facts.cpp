#include "core/process/facts.h"

#include "core/file/journal.h"
#include "core/process/recorded_environment.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/text/redact.h"

#include <fcntl.h>
#include <unistd.h>
#include <cstring>

extern char** environ;

namespace pytracer::core {
namespace {

using blackbox::EntryKind;

size_t copy_words(const char* const* words, char* to, size_t room) {
  size_t used = 0;
  for (; *words != nullptr && used < room; words++) {
    size_t left = room - used, nbytes = strlen(*words) + 1;
    memcpy(to + used, *words, nbytes < left ? nbytes : left);
    used += nbytes < left ? nbytes : left;
  }
  return used;
}

size_t read_command_line(char* to, size_t room) {
  int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, to, room) : 0;
  if (fd >= 0) close(fd);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

}  // namespace

void write_process(const char* const* arguments) noexcept {
  PYTRACER_LARGE static char buffer[65536];
  size_t n = arguments != nullptr ? copy_words(arguments, buffer, sizeof buffer) : read_command_line(buffer, sizeof buffer);
  crashsafe::Redacted command = crashsafe::redact_words(buffer, n);
  append(EntryKind::kProcess, buffer, command.nbytes);
  size_t used = 0;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; entry++) {
    size_t length = strlen(*entry) + 1;
    if (!is_recorded(*entry) || used + length > sizeof buffer) continue;
    memcpy(buffer + used, *entry, length);
    used += length;
  }
  crashsafe::Redacted variables = crashsafe::redact_words(buffer, used);
  append(EntryKind::kEnvironment, buffer, variables.nbytes);
  g_box.header->redacted = command.count + variables.count;
}

}  // namespace pytracer::core
