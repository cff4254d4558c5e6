// _dl_find_object(), for wheels: glibc has it since 2.35. The linked-in libgcc and the crash handler ask it which image an address lies in.
//
// Before 2.35 the loader's list of images is read instead, without its lock: by reads that may fail, because another thread may be
// unloading an image. What was read is kept, and read again when an address lies in no known image and the list has changed.
#include "crashsafe/platform/large.h"
#include "crashsafe/platform/safe_read.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <atomic>
#include <cstring>

namespace {

using pytracer::crashsafe::read_value;

using Finder = int (*)(void*, dl_find_object*);
constinit std::atomic<Finder> glibcs{nullptr};

__attribute__((constructor(101))) void ask_glibc() {
  glibcs.store(reinterpret_cast<Finder>(dlsym(RTLD_DEFAULT, "_dl_find_object")), std::memory_order_relaxed);
}

constexpr uint32_t kImages = 1024;
constexpr int kSegments = 64;

struct LoadedImage {
  const link_map* map;
  uint64_t bias, start, end, unwind_table;
};

struct Images {
  uint32_t count;
  uint64_t signature;
  LoadedImage images[kImages];
};

// Readers use one while the other is filled.
PYTRACER_LARGE Images generations[2];
constinit std::atomic<uint32_t> current{0};
constinit std::atomic_flag filling = ATOMIC_FLAG_INIT;

template <class Fn>
void each_image(Fn visit) {
  const link_map* map = _r_debug.r_map;
  for (uint32_t i = 0; map != nullptr && i < kImages; i++) {
    link_map copy;
    if (!read_value(copy, reinterpret_cast<uint64_t>(map))) return;
    visit(map, copy, i == 0);
    map = copy.l_next;
  }
}

// Where the program headers of an image are, and how many; 0: unknown.
uint64_t program_headers(uint64_t bias, bool program, uint64_t& count) {
  if (program) {  // it may be linked to a fixed address
    count = getauxval(AT_PHNUM);
    return getauxval(AT_PHDR);
  }
  ElfW(Ehdr) header;
  if (!read_value(header, bias) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
  count = header.e_phnum;
  return bias + header.e_phoff;
}

bool describe(const link_map* map, uint64_t bias, bool program, LoadedImage& image) {
  image = {map, bias, ~0ull, 0, 0};
  uint64_t count = 0, headers = program_headers(bias, program, count);
  for (uint64_t i = 0; headers != 0 && i < count && i < kSegments; i++) {
    ElfW(Phdr) segment;
    if (!read_value(segment, headers + i * sizeof segment)) return false;
    uint64_t start = bias + segment.p_vaddr, end = start + segment.p_memsz;
    if (segment.p_type == PT_GNU_EH_FRAME) image.unwind_table = start;
    if (segment.p_type != PT_LOAD) continue;
    if (start < image.start) image.start = start;
    if (end > image.end) image.end = end;
  }
  return image.start < image.end;
}

const LoadedImage* look(uint64_t addr) {
  const Images& known = generations[current.load(std::memory_order_acquire)];
  for (uint32_t i = 0; i < known.count; i++) {
    const LoadedImage& image = known.images[i];
    if (addr < image.start || addr >= image.end) continue;
    uint64_t bias = 0;
    return read_value(bias, reinterpret_cast<uint64_t>(&image.map->l_addr)) && bias == image.bias ? &image : nullptr;
  }
  return nullptr;
}

// False: the list is as it was, or another thread reads it.
bool read_list() {
  if (filling.test_and_set(std::memory_order_acquire)) return false;
  uint32_t in_use = current.load(std::memory_order_relaxed);
  uint64_t signature = 1;
  each_image([&](const link_map* map, const link_map& copy, bool) {
    signature = (signature ^ reinterpret_cast<uint64_t>(map) ^ copy.l_addr) * 0x9e3779b97f4a7c15u;
  });
  bool changed = signature != generations[in_use].signature;
  if (changed) {
    Images& fresh = generations[1 - in_use];
    fresh.count = 0;
    fresh.signature = signature;
    each_image([&](const link_map* map, const link_map& copy, bool program) {
      if (fresh.count < kImages && describe(map, copy.l_addr, program, fresh.images[fresh.count])) fresh.count++;
    });
    current.store(1 - in_use, std::memory_order_release);
  }
  filling.clear(std::memory_order_release);
  return changed;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(void* pc, dl_find_object* out) noexcept {
  if (Finder finder = glibcs.load(std::memory_order_relaxed)) return finder(pc, out);
  uint64_t addr = reinterpret_cast<uint64_t>(pc);
  const LoadedImage* image = look(addr);
  if (image == nullptr && read_list()) image = look(addr);
  if (image == nullptr) return -1;
  *out = {};
  out->dlfo_map_start = reinterpret_cast<void*>(image->start);
  out->dlfo_map_end = reinterpret_cast<void*>(image->end);
  out->dlfo_link_map = const_cast<link_map*>(image->map);
  out->dlfo_eh_frame = reinterpret_cast<void*>(image->unwind_table);
  return image->unwind_table != 0 ? 0 : -1;
}
