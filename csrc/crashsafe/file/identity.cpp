#include "crashsafe/file/identity.h"

#include "crashsafe/platform/open_file.h"
#include "crashsafe/platform/process_status.h"
#include "crashsafe/text/bounded_text.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

size_t read_file(const char* from, char* to, size_t room) {
  OpenFile file(from);
  long n = file.opened() ? file.read(to, room - 1) : 0;
  to[n > 0 ? n : 0] = 0;
  return n > 0 ? static_cast<size_t>(n) : 0;
}

}  // namespace

void read_host(char* host, size_t room) noexcept {
  utsname system{};
  BoundedText(host, room).add(syscall(SYS_uname, &system) == 0 && system.nodename[0] != 0 ? system.nodename : "host");
}

void read_host_as_name(char* host, size_t room) noexcept {
  read_host(host, room);
  for (char* c = host; *c != 0; c++)
    if (*c == '/') *c = '_';
}

void complete_identity(blackbox::FileHeader& header) noexcept {
  header.uid = static_cast<uint32_t>(syscall(SYS_getuid));
  header.start_ticks = read_start("/proc/self/stat").ticks;
  read_host(header.host, sizeof header.host);
  char id[64];
  size_t n = read_file("/proc/sys/kernel/random/boot_id", id, sizeof id);
  while (n > 0 && id[n - 1] == '\n') n--;
  memcpy(header.boot_id, id, n < sizeof header.boot_id ? n : sizeof header.boot_id);
}

bool is_ours_alone(const struct stat& found, bool strictly) noexcept {
  bool others = (found.st_mode & S_IWOTH) != 0 || (strictly && (found.st_mode & S_IWGRP) != 0);
  return found.st_uid == static_cast<uid_t>(syscall(SYS_geteuid)) && !others;
}

bool is_ours_alone(int descriptor, bool strictly) noexcept {
  struct stat found{};
  return syscall(SYS_fstat, descriptor, &found) == 0 && is_ours_alone(found, strictly);
}

}  // namespace pytracer::crashsafe
