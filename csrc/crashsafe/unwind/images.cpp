#include "crashsafe/unwind/images.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/memory/map_lines.h"
#include "crashsafe/platform/open_file.h"
#include "crashsafe/platform/safe_read.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <cstring>

// Lock-free since glibc 2.35; weak, so that the library can also be built with older ones.
extern "C" int _dl_find_object(void*, struct dl_find_object*) noexcept __attribute__((weak));

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

bool find_image(uint64_t pc, dl_find_object& out) {
  return _dl_find_object != nullptr && pc > 4095 && _dl_find_object(reinterpret_cast<void*>(pc), &out) == 0;
}

// The build-id note of an image mapped at `start`, read from memory: the file may have been replaced since.
void read_build_id(uint64_t start, uint64_t bias, Image& image) {
  ElfW(Ehdr) header;
  if (!read_value(header, start) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return;
  for (int i = 0; i < header.e_phnum && i < 64; i++) {
    ElfW(Phdr) segment;
    if (!read_value(segment, start + header.e_phoff + static_cast<uint64_t>(i) * header.e_phentsize)) return;
    if (segment.p_type != PT_NOTE) continue;
    uint64_t at = bias + segment.p_vaddr, end = at + segment.p_memsz;
    for (int n = 0; n < 32 && at + sizeof(ElfW(Nhdr)) <= end; n++) {
      ElfW(Nhdr) note;
      if (!read_value(note, at) || note.n_namesz > 256 || note.n_descsz > 4096) return;
      uint64_t name = at + sizeof note, data = name + ((note.n_namesz + 3) & ~3u);
      char owner[4];
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && read_bytes(owner, name, 4) && memcmp(owner, "GNU", 4) == 0) {
        uint32_t nbytes = note.n_descsz < sizeof image.build_id ? note.n_descsz : sizeof image.build_id;
        if (read_bytes(image.build_id, data, nbytes)) image.build_id_nbytes = nbytes;
        return;
      }
      at = data + ((note.n_descsz + 3) & ~3u);
    }
  }
}

// Returns how much was written.
uint32_t copy_path(const link_map* map, char* to, uint32_t room) {
  uint64_t name = 0;
  read_value(name, reinterpret_cast<uint64_t>(&map->l_name));
  char first = 0;
  uint32_t n = 0;
  if (!read_value(first, name)) return 0;
  if (first == 0) {  // the program itself has no name
    long got = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", to, room);
    return got > 0 ? static_cast<uint32_t>(got) : 0;
  }
  while (n < room && read_bytes(to + n, name + n, 1) && to[n] != 0) n++;
  return n;
}

void keep_path(const link_map* map, Image& image) {
  constexpr uint32_t kLongest = 4096;
  CrashHeader& crash = *g_box.crash.data;
  if (g_box.arena.items - crash.arena_used < kLongest) return;
  image.path = crash.arena_used;
  image.path_nbytes = copy_path(map, g_box.arena.data + crash.arena_used, kLongest);
  crash.arena_used += image.path_nbytes;
}

uint32_t image_of(uint64_t pc) {
  CrashHeader& crash = *g_box.crash.data;
  for (uint32_t i = 0; i < crash.image_count; i++)
    if (pc >= g_box.images.data[i].start && pc < g_box.images.data[i].end) return i + 1;
  dl_find_object found;
  if (crash.image_count >= g_box.images.items || !find_image(pc, found) || found.dlfo_link_map == nullptr) return 0;
  Image& image = g_box.images.data[crash.image_count];
  image = {};
  image.start = reinterpret_cast<uint64_t>(found.dlfo_map_start);
  image.end = reinterpret_cast<uint64_t>(found.dlfo_map_end);
  image.bias = found.dlfo_link_map->l_addr;
  keep_path(found.dlfo_link_map, image);
  read_build_id(image.start, image.bias, image);
  return ++crash.image_count;
}

}  // namespace

bool images_are_known() noexcept { return _dl_find_object != nullptr; }

bool in_image(uint64_t addr) noexcept {
  dl_find_object ignored;
  return find_image(addr, ignored);
}

bool in_same_image(uint64_t addr, uint64_t other) noexcept {
  dl_find_object first, second;
  return find_image(addr, first) && find_image(other, second) && first.dlfo_map_start == second.dlfo_map_start;
}

uint32_t copy_image_path(uint64_t addr, char* to, uint32_t room, uint64_t& offset) noexcept {
  dl_find_object found;
  CheckedReads reads;
  offset = 0;
  if (!reads.possible() || !find_image(addr, found) || found.dlfo_link_map == nullptr) return 0;
  offset = addr - found.dlfo_link_map->l_addr;
  return copy_path(found.dlfo_link_map, to, room);
}

void write_frame_images() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  NativeFrame* frames = g_box.native_frames.data;
  for (uint32_t i = 0; i < crash.native_count; i++) frames[i].image = image_of(frames[i].pc);
  NativeFrame* tail = frames + kNativeHeadFrames;
  for (uint32_t i = 0; i < crash.native_tail; i++) tail[i].image = image_of(tail[i].pc);
}

void write_maps() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  OpenFile file("/proc/self/maps");
  while (file.opened() && crash.maps_used < g_box.maps.items) {
    long n = file.read(g_box.maps.data + crash.maps_used, g_box.maps.items - crash.maps_used);
    if (n <= 0) break;
    crash.maps_used += static_cast<uint32_t>(n);
  }
  if (crash.maps_used == g_box.maps.items) crash.maps_truncated = 1;
}

void write_loaded_images() noexcept {
  each_mapping([](const MapLine& line) {
    if (line.executable) image_of(line.start);
    return true;
  });
}

}  // namespace pytracer::crashsafe
