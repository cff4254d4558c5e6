#include "core/process/notice.h"

#include "core/file/run_directory.h"
#include "crashsafe/file/mapping.h"
#include "crashsafe/platform/open_file.h"
#include "crashsafe/text/raw_log.h"

#include <unistd.h>
#include <cstdio>
#include <cstring>

namespace pytracer::core {
namespace {

// Where there are no counters to remember it: a parent with the same variable has written it, or did not need to. A parent that may not
// be read belongs to another user, who did not ask for a recording.
bool parent_announced() {
  constexpr char kVariable[] = "PYTRACER_DIR=";
  constexpr size_t kKept = sizeof kVariable;  // a match may lie across two reads; the byte before it ends another variable
  char path[48], text[4096];
  snprintf(path, sizeof path, "/proc/%d/environ", getppid());
  crashsafe::OpenFile file(path);
  if (!file.opened()) return true;
  size_t have = 1;
  text[0] = 0;
  for (;;) {
    long n = file.read(text + have, sizeof text - have);
    if (n <= 0) return false;
    have += static_cast<size_t>(n);
    for (size_t at = 0; at + kKept <= have; at++)
      if (text[at] == 0 && memcmp(text + at + 1, kVariable, kKept - 1) == 0) return true;
    if (have > kKept) {
      memmove(text, text + have - kKept, kKept);
      have = kKept;
    }
  }
}

}  // namespace

void announce_unrecorded(const char* directory, const crashsafe::Failure& failure) noexcept {
  if (RunCounters* counters = run_counters(); counters != nullptr ? counters->notice_written.exchange(1) != 0 : parent_announced()) return;
  crashsafe::RawLine line;
  line.text("pytracer: process ").number(static_cast<uint64_t>(getpid())).text(" is not recorded: ").text(failure.what).text(": ");
  line.text(strerror(failure.error)).text("; PYTRACER_DIR is ").text(directory).text(", set it to a local directory of your own").write_out();
}

void announce_missing(const char* text) noexcept {
  if (RunCounters* counters = run_counters(); counters != nullptr ? counters->announced.exchange(1) != 0 : parent_announced()) return;
  crashsafe::RawLine line;
  line.text("pytracer: ").text(text).write_out();
}

}  // namespace pytracer::core
