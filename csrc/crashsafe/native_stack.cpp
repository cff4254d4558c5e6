#include "native_stack.h"

#include "arch.h"
#include "box.h"
#include "safe_read.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>
#include <cstring>

// Lock-free since glibc 2.35; weak, so that the library also loads on older ones.
extern "C" int _dl_find_object(void*, struct dl_find_object*) noexcept __attribute__((weak));

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint64_t kWalkLimit = 2'000'000;  // an overflowed stack has tens of thousands: 90 ns each
constexpr int kScanWords = 4096, kScanFrames = 32, kEnoughFrames = 4;
constexpr uint32_t kCfi = 1, kPoppedWildPc = 2, kFramePointers = 4, kScan = 8, kComplete = 16;
constexpr uint32_t kExact = 0, kUnwound = 1, kFromFramePointer = 2, kScanned = 3;

bool find_image(uint64_t pc, dl_find_object& out) {
  return _dl_find_object != nullptr && pc > 4095 && _dl_find_object(reinterpret_cast<void*>(pc), &out) == 0;
}
bool in_image(uint64_t pc) {
  dl_find_object ignored;
  return find_image(pc, ignored);
}

// In a loaded image and just after a call instruction.
bool is_return_address(uint64_t addr) {
  if (!in_image(addr)) return false;
#if defined(__x86_64__)
  unsigned char b[7];
  if (!read_bytes(b, addr - 7, 7)) return false;
  if (b[2] == 0xe8) return true;
  auto indirect = [&](int i) { return b[i] == 0xff && (b[i + 1] & 0x38) == 0x10; };
  return indirect(5) || indirect(4) || indirect(1) || indirect(0);
#else
  uint32_t word = 0;
  if (!read_value(word, addr - 4)) return false;
  return (word >> 26) == 0x25 || (word & 0xfffffc1f) == 0xd63f0000;  // bl, blr
#endif
}

NativeFrame& frame_at(uint32_t index) { return g_box.native_frames.data[index]; }

void add(uint64_t pc, uint32_t found) {
  CrashHeader& crash = *g_box.crash.data;
  uint64_t n = crash.native_total++;
  if (n < kNativeHeadFrames) {
    frame_at(static_cast<uint32_t>(n)) = {pc, 0, found};
    crash.native_count = static_cast<uint32_t>(n) + 1;
  } else {  // keep both ends of a deep stack; the reader rotates the tail by native_total
    frame_at(kNativeHeadFrames + static_cast<uint32_t>(n - kNativeHeadFrames) % kNativeTailFrames) = {pc, 0, found};
    if (crash.native_tail < kNativeTailFrames) crash.native_tail++;
  }
}

struct Walk {
  uint64_t crash_pc;
  bool crossed_signal_frame;
  bool innermost_is_exact;
};

_Unwind_Reason_Code on_frame(_Unwind_Context* context, void* argument) {
  auto* walk = static_cast<Walk*>(argument);
  int before = 0;
  uint64_t pc = _Unwind_GetIPInfo(context, &before);
  if (pc == 0) {  // the caller of a thread's first function: the walk is complete
    g_box.crash.data->native_how |= kComplete;
    return _URC_END_OF_STACK;
  }
  if (!walk->crossed_signal_frame) {  // our own handler's frames come first
    if (pc != walk->crash_pc) return _URC_NO_REASON;
    walk->crossed_signal_frame = true;
    if (walk->innermost_is_exact) {
      add(pc, kExact);
      return _URC_NO_REASON;
    }
  }
  add(pc - (before != 0 ? 0 : 1), kUnwound);
  return g_box.crash.data->native_total > kWalkLimit ? _URC_END_OF_STACK : _URC_NO_REASON;
}

_Unwind_Reason_Code no_frame(_Unwind_Context*, void*) { return _URC_NO_REASON; }

void unwind_from(uint64_t pc, bool exact) {
  Walk walk{pc, false, exact};
  _Unwind_Backtrace(on_frame, &walk);
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

void keep_path(const link_map* map, Image& image) {
  CrashHeader& crash = *g_box.crash.data;
  char* to = g_box.arena.data + crash.arena_used;
  uint32_t room = g_box.arena.items - crash.arena_used, n = 0;
  uint64_t name = 0;
  read_value(name, reinterpret_cast<uint64_t>(&map->l_name));
  char first = 0;
  if (room < 4096 || !read_value(first, name)) return;
  if (first == 0) {  // the program itself has no name
    long got = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", to, 4096);
    n = got > 0 ? static_cast<uint32_t>(got) : 0;
  } else {
    while (n < 4096 && read_bytes(to + n, name + n, 1) && to[n] != 0) n++;
  }
  image.path = crash.arena_used;
  image.path_nbytes = n;
  crash.arena_used += n;
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

void warm_up_unwinder() noexcept { _Unwind_Backtrace(no_frame, nullptr); }

void write_native_stack(ucontext_t* context) noexcept {
  CrashHeader& crash = *g_box.crash.data;
  uint64_t pc = pc_of(context), sp = sp_of(context);
  crash.native_how = kCfi;
  if (_dl_find_object == nullptr || in_image(pc)) {
    unwind_from(pc, true);
    if (crash.native_total == 0) add(pc, kExact);
    return;
  }
  add(pc, kExact);
#if defined(__x86_64__)
  // A jump to a wild address has no frame of its own: the caller is on top of the stack. libgcc reads the registers from
  // the signal frame in memory, so edit them there for the time of the walk.
  uint64_t caller = 0;
  if (!read_value(caller, sp) || !is_return_address(caller)) return;
  crash.native_how |= kPoppedWildPc;
  set_pc(context, caller - 1);
  set_sp(context, sp + 8);
  unwind_from(caller - 1, false);
  set_pc(context, pc);
  set_sp(context, sp);
#else
  (void)sp;
#endif
}

void write_native_fallback(const ucontext_t* context) noexcept {
  CrashHeader& crash = *g_box.crash.data;
  if (crash.native_total > kEnoughFrames || (crash.native_how & kComplete) != 0) return;
  uint64_t fp = fp_of(context), sp = sp_of(context), pair[2];
  int found = 0;
  for (uint64_t low = sp; found < 64 && fp >= low && fp - low < (8u << 20) && read_bytes(pair, fp, sizeof pair) && is_return_address(pair[1]);
       low = fp, fp = pair[0]) {
    add(pair[1] - 1, kFromFramePointer);
    found++;
  }
  if (found > 0) {
    crash.native_how |= kFramePointers;
    return;
  }
  for (int i = 0; i < kScanWords && found < kScanFrames; i++) {
    uint64_t word = 0;
    if (!read_value(word, sp + static_cast<uint64_t>(i) * 8)) break;
    if (!is_return_address(word)) continue;
    add(word - 1, kScanned);
    found++;
  }
  if (found > 0) crash.native_how |= kScan;
}

void write_images() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  for (uint32_t i = 0; i < crash.native_count; i++) frame_at(i).image = image_of(frame_at(i).pc);
  for (uint32_t i = 0; i < crash.native_tail; i++) frame_at(kNativeHeadFrames + i).image = image_of(frame_at(kNativeHeadFrames + i).pc);
}

void write_maps() noexcept {
  CrashHeader& crash = *g_box.crash.data;
  int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (fd < 0) return;
  while (crash.maps_used < g_box.maps.items) {
    long n = syscall(SYS_read, fd, g_box.maps.data + crash.maps_used, g_box.maps.items - crash.maps_used);
    if (n <= 0) break;
    crash.maps_used += static_cast<uint32_t>(n);
  }
  if (crash.maps_used == g_box.maps.items) crash.maps_truncated = 1;
  syscall(SYS_close, fd);
}

}  // namespace pytracer::crashsafe
