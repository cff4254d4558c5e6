#include "core/file/box_start.h"

#include "core/file/run_counters.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/budget.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/file/identity.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/text/bounded_text.h"

#include <sys/stat.h>
#include <unistd.h>
#include <climits>
#include <cstring>
#include <ctime>

namespace pytracer::core {
namespace {

using namespace blackbox;

constexpr uint64_t kBytesPerBox = 4ull << 20;  // a run may take so much disk for each black box of its budget

// A black box of that name was created by this pid before it executed.
bool had_box(const char* host) {
  struct stat found{};
  char path[PATH_MAX + 160];
  crashsafe::BoundedText text(path, sizeof path);
  text.add(run_directory()).add("/boxes/").add(host).add(".").add(static_cast<uint32_t>(getpid())).add(".blackbox");
  return lstat(path, &found) == 0;
}

}  // namespace

void write_identity(FileHeader& header, bool preloaded, uint32_t page_bytes) noexcept {
  memcpy(header.magic, kMagic, sizeof header.magic);
  header.major = kMajor;
  header.minor = kMinor;
  header.header_bytes = kHeaderBytes;
  header.state = static_cast<uint32_t>(State::kRecording);
  header.arch = crashsafe::kArch;
  header.pid = getpid();
  header.ppid = getppid();
  header.process_group = getpgrp();
  header.page_bytes = page_bytes;
  header.created_mono_ns = crashsafe::now_ns();
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  header.created_wall_ns = static_cast<uint64_t>(wall.tv_sec) * 1000000000ull + static_cast<uint64_t>(wall.tv_nsec);
  header.preloaded = preloaded;
}

bool prepare_box(const char* directory, bool preloaded, uint32_t most_boxes, bool& at_once, Failure& failure) noexcept {
  struct stat boxes{};
  if (!open_run_directory(directory, boxes, failure)) return false;
  crashsafe::set_box_directory(run_directory(), boxes.st_dev, boxes.st_ino);
  crashsafe::set_budget(run_counters(), most_boxes, most_boxes * kBytesPerBox);
  char host[crashsafe::kHostBytes];
  crashsafe::read_host_as_name(host, sizeof host);
  at_once = (run_counters() != nullptr && count_process(*run_counters()) == 0) || had_box(host);
  crashsafe::begin_early();
  crashsafe::page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  write_identity(*g_box.header, preloaded, static_cast<uint32_t>(crashsafe::page_bytes));
  g_box.header->step = -1;
  g_box_pid = getpid();
  return true;
}

}  // namespace pytracer::core
