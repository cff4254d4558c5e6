#include "crashsafe/memory/process_context.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/memory/map_lines.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/open_file.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/text/bounded_text.h"
#include "crashsafe/text/redact.h"

#include <sys/stat.h>
#include <sys/vfs.h>
#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint32_t kLongestWords = 1024, kLongestCommand = 512, kLongestPath = 4096;
constexpr uint64_t kBefore = 32, kAround = 128, kTopOfStack = 1024;
constexpr uint64_t kUnknown = ~0ull;

const void* abort_message = nullptr;

char* room(uint32_t nbytes) {
  const CrashHeader& crash = *g_box.crash.data;
  return crash.arena_used + nbytes <= g_box.arena.items ? g_box.arena.data + crash.arena_used : nullptr;
}
uint32_t take(uint32_t nbytes) {
  uint32_t at = g_box.crash.data->arena_used;
  g_box.crash.data->arena_used += (nbytes + 7) & ~7u;
  return at;
}

// struct abort_msg_s { unsigned int size; char msg[]; } (glibc, include/stdlib.h); set by assert, by malloc's checks and by
// __fortify_fail.
void write_abort_text(CrashHeader& crash) {
  uint64_t message = 0;
  uint32_t nbytes = 0;
  if (abort_message == nullptr || !read_value(message, reinterpret_cast<uint64_t>(abort_message)) || message == 0) return;
  char* to = room(kLongestWords);
  while (to != nullptr && nbytes < kLongestWords && read_bytes(to + nbytes, message + sizeof(uint32_t) + nbytes, 1) && to[nbytes] != 0) nbytes++;
  if (nbytes == 0) return;
  crash.abort_text_nbytes = nbytes;
  crash.abort_text = take(nbytes);
}

void write_sender(CrashHeader& crash) {
  char path[48];
  BoundedText(path, sizeof path).add("/proc/").add(static_cast<uint32_t>(crash.sender_pid)).add("/cmdline");
  OpenFile file(path);
  char* to = room(kLongestCommand);
  long n = file.opened() && to != nullptr ? file.read(to, kLongestCommand) : 0;
  if (n <= 0) return;
  Redacted words = redact_words(to, static_cast<size_t>(n));
  crash.sender_text_nbytes = static_cast<uint32_t>(words.nbytes);
  g_box.header->redacted += words.count;
  crash.sender_text = take(crash.sender_text_nbytes);
}

bool find_mapping(uint64_t addr, MapLine& found) {
  bool hit = false;
  each_mapping([&](const MapLine& line) {
    if (addr < line.start || addr >= line.end) return true;
    found = line;
    hit = true;
    return false;
  });
  return hit;
}

// /proc/self/map_files/start-end is a link to the mapped file, also when its name was removed or refers to another file.
void name_of_map_file(const MapLine& line, char (&path)[80]) {
  char* to = path;
  for (const char* c = "/proc/self/map_files/"; *c != 0; c++) *to++ = *c;
  for (uint64_t value : {line.start, line.end}) {
    char digits[16];
    size_t at = sizeof digits;
    do digits[--at] = "0123456789abcdef"[value & 15];
    while ((value >>= 4) != 0);
    memcpy(to, digits + at, sizeof digits - at);
    to += sizeof digits - at;
    *to++ = '-';
  }
  to[-1] = 0;
}

bool size_of(const char* path, uint64_t inode, CrashHeader& crash) {
  struct stat file{};
  if (syscall(SYS_newfstatat, AT_FDCWD, path, &file, 0) != 0 || file.st_ino != inode || !S_ISREG(file.st_mode)) return false;
  crash.file_nbytes = static_cast<uint64_t>(file.st_size);
  struct statfs system{};
  if (syscall(SYS_statfs, path, &system) == 0) {
    crash.file_room = system.f_bavail * static_cast<uint64_t>(system.f_bsize);
    crash.file_system = static_cast<uint64_t>(system.f_type);
  }
  return true;
}

// Bit per register whose value is in device memory: reading it may wait for the device, or forever.
uint64_t device_pointers(const CrashHeader& crash) {
  uint64_t bits = 0;
  each_mapping([&](const MapLine& line) {
    if (!line.path_begins("/dev/") || line.path_begins("/dev/shm/") || line.path_begins("/dev/zero")) return true;
    for (uint32_t i = 0; i < kPointerRegisters; i++)
      if (crash.registers[i] >= line.start && crash.registers[i] < line.end) bits |= 1ull << i;
    return true;
  });
  return bits;
}

bool already_there(uint64_t from, uint64_t to) {
  const CrashHeader& crash = *g_box.crash.data;
  for (uint32_t i = 0; i < crash.memory_count; i++) {
    const MemoryBlock& block = g_box.memory.data[i];
    if (from >= block.addr && to <= block.addr + block.nbytes) return true;
  }
  return false;
}

void keep_near(uint32_t register_index, uint64_t value, uint64_t before, uint64_t nbytes) {
  CrashHeader& crash = *g_box.crash.data;
  char* to = room(static_cast<uint32_t>(nbytes));
  if (value < 4096 || value + nbytes < value || to == nullptr || crash.memory_count >= g_box.memory.items) return;
  uint64_t from = value - before, end = from + nbytes;
  if (already_there(from, end)) return;
  constexpr uint64_t kPage = 4096;
  // Whole, else without the page before, else without the page behind.
  if (!read_bytes(to, from, end - from)) {
    if ((from & ~(kPage - 1)) != (value & ~(kPage - 1))) from = value & ~(kPage - 1);
    if (!read_bytes(to, from, end - from)) end = (value & ~(kPage - 1)) + kPage < end ? (value & ~(kPage - 1)) + kPage : end;
    if (!read_bytes(to, from, end - from)) return;
  }
  auto kept = static_cast<uint32_t>(end - from);
  g_box.memory.data[crash.memory_count] = {from, take(kept), kept, register_index, 0, value};
  crash.memory_count++;
}

}  // namespace

void set_abort_message(const void* abort_msg) noexcept { abort_message = abort_msg; }

void write_messages() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  if (crash.signal == SIGABRT) write_abort_text(crash);
  if (crash.code <= 0 && crash.sender_pid > 0 && crash.sender_pid != g_box_pid) write_sender(crash);
}

void write_fault_file() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  crash.file_nbytes = crash.file_room = kUnknown;
  MapLine line{};
  if (crash.signal != SIGBUS || crash.code <= 0 || !find_mapping(crash.fault_addr, line) || !line.path_begins("/")) return;
  char* path = room(kLongestPath + 1);
  if (path == nullptr || line.path_nbytes > kLongestPath) return;
  memcpy(path, line.path, line.path_nbytes);  // borrowed: nothing is taken from the arena
  path[line.path_nbytes] = 0;
  if (!line.path_ends(" (deleted)") && size_of(path, line.inode, crash)) return;
  char map_file[80];
  name_of_map_file(line, map_file);
  size_of(map_file, line.inode, crash);
}

void write_memory() noexcept {
  const CrashHeader& crash = *g_box.crash.data;
  uint64_t of_device = device_pointers(crash);
  for (uint32_t i = 0; i < kPointerRegisters; i++) {
    if ((of_device >> i & 1) != 0) continue;
    if (i == kStackPointerIndex)
      keep_near(i, crash.registers[i], 0, kTopOfStack);
    else
      keep_near(i, crash.registers[i], kBefore, kAround);
  }
  keep_near(kProgramCounterIndex, crash.pc, kAround / 2, kAround);
}

}  // namespace pytracer::crashsafe
