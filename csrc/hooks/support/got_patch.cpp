#include "hooks/support/got_patch.h"

#include "core/core.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

namespace pytracer::hooks {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobDat = R_X86_64_GLOB_DAT;
#else
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobDat = R_AARCH64_GLOB_DAT;
#endif

// Nearly all of the 150 000 entries hold functions that are not searched for: one bit excludes them.
class Sought {
 public:
  explicit Sought(const std::vector<GotPatch>& patches) {
    for (const GotPatch& one : patches) {
      if (one.from == nullptr) continue;
      for (const void* function : {one.from, one.to}) bits_[word(function)] |= bit(function);
    }
  }
  bool maybe(const void* function) const { return (bits_[word(function)] & bit(function)) != 0; }

 private:
  static size_t word(const void* function) { return reinterpret_cast<uintptr_t>(function) >> 10 & 3; }
  static uint64_t bit(const void* function) { return uint64_t{1} << (reinterpret_cast<uintptr_t>(function) >> 4 & 63); }  // aligned to 16
  uint64_t bits_[4] = {};
};

struct Work {
  const std::vector<GotPatch>& patches;
  const Sought sought;
  uintptr_t own[2];        // load addresses of our libraries
  std::vector<int> slots;  // of each redirection
};

std::vector<std::pair<const void*, int>> last_walk;  // function, entries that hold it

uintptr_t page_of(uintptr_t addr) { return addr & ~(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)) - 1); }

// The table may lie in pages that the loader has made read-only (RELRO).
bool store(void** slot, void* value, uintptr_t relro, uintptr_t relro_end) {
  auto at = reinterpret_cast<uintptr_t>(slot), page = page_of(at);
  bool read_only = at >= relro && at < relro_end;
  if (read_only && mprotect(reinterpret_cast<void*>(page), at + sizeof *slot - page, PROT_READ | PROT_WRITE) != 0) return false;
  std::atomic_ref(*slot).store(value, std::memory_order_release);  // other threads are calling through it
  if (read_only) mprotect(reinterpret_cast<void*>(page), at + sizeof *slot - page, PROT_READ);
  return true;
}

// A loaded library's entries.
struct Library {
  uintptr_t base, relro = 0, relro_end = 0;
  uintptr_t tables[2] = {};
  size_t sizes[2] = {}, first[2] = {};
  const char* names = nullptr;
  const ElfW(Sym) * symbols = nullptr;

  explicit Library(const dl_phdr_info* info) : base(info->dlpi_addr) {
    const ElfW(Dyn)* dynamic = nullptr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const ElfW(Phdr) & segment = info->dlpi_phdr[i];
      if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + segment.p_vaddr);
      if (segment.p_type == PT_GNU_RELRO) {
        // As the loader protects it: the last page may hold variables as well, and is left writable.
        relro = page_of(base + segment.p_vaddr);
        relro_end = page_of(base + segment.p_vaddr + segment.p_memsz);
      }
    }
    for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; dynamic++) {
      if (dynamic->d_tag == DT_JMPREL) tables[0] = dynamic->d_un.d_ptr;
      if (dynamic->d_tag == DT_PLTRELSZ) sizes[0] = dynamic->d_un.d_val;
      if (dynamic->d_tag == DT_RELA) tables[1] = dynamic->d_un.d_ptr;
      if (dynamic->d_tag == DT_RELASZ) sizes[1] = dynamic->d_un.d_val;
      // The linker puts those without a symbol first: in libtorch_cpu 225 970 of 321 106, whose pages need not be read.
      if (dynamic->d_tag == DT_RELACOUNT) first[1] = dynamic->d_un.d_val;
      if (dynamic->d_tag == DT_STRTAB) names = reinterpret_cast<const char*>(dynamic->d_un.d_ptr);
      if (dynamic->d_tag == DT_SYMTAB) symbols = reinterpret_cast<const ElfW(Sym)*>(dynamic->d_un.d_ptr);
    }
  }

  // visit(slot, entry)
  template <class Visit>
  void each_slot(Visit visit) const {
    for (int t = 0; t < 2; t++) {
      if (tables[t] == 0) continue;
      const auto* entries = reinterpret_cast<const ElfW(Rela)*>(tables[t]);
      for (size_t i = first[t]; i < sizes[t] / sizeof *entries; i++) {
        auto type = static_cast<uint32_t>(ELF64_R_TYPE(entries[i].r_info));
        if (type == kJumpSlot || type == kGlobDat) visit(reinterpret_cast<void**>(base + entries[i].r_offset), entries[i]);
      }
    }
  }
  bool put(void** slot, void* value) const { return store(slot, value, relro, relro_end); }
};

int each_library(dl_phdr_info* info, size_t, void* argument) {
  auto& work = *static_cast<Work*>(argument);
  if (info->dlpi_addr == work.own[0] || info->dlpi_addr == work.own[1] || strstr(info->dlpi_name, "linux-vdso") != nullptr) return 0;
  const Library library(info);
  library.each_slot([&](void** slot, const ElfW(Rela) &) {
    void* value = std::atomic_ref(*slot).load(std::memory_order_relaxed);
    if (!work.sought.maybe(value)) return;
    for (size_t one = 0; one < work.patches.size(); one++) {
      auto [from, to] = work.patches[one];
      if (from != nullptr && (value == to || (value == from && library.put(slot, to)))) work.slots[one]++;
    }
  });
  return 0;
}

struct Lead {
  uintptr_t base;
  const char* function;
  void* to;
};

int lead_in(dl_phdr_info* info, size_t, void* argument) {
  const auto& lead = *static_cast<const Lead*>(argument);
  if (info->dlpi_addr != lead.base) return 0;
  const Library library(info);
  if (library.names == nullptr || library.symbols == nullptr) return 1;
  library.each_slot([&](void** slot, const ElfW(Rela) & entry) {
    const char* name = library.names + library.symbols[ELF64_R_SYM(entry.r_info)].st_name;
    if (strcmp(name, lead.function) == 0) library.put(slot, lead.to);
  });
  return 1;
}

uintptr_t library_of(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 ? reinterpret_cast<uintptr_t>(info.dli_fbase) : 0;
}

}  // namespace

void patch_got(const std::vector<GotPatch>& patches) {
  Work work{patches,
            Sought(patches),
            {library_of(reinterpret_cast<void*>(each_library)), library_of(reinterpret_cast<void*>(pytracer_recording))},
            std::vector<int>(patches.size())};
  dl_iterate_phdr(each_library, &work);
  last_walk.clear();
  for (size_t one = 0; one < patches.size(); one++) last_walk.emplace_back(patches[one].to, work.slots[one]);
}

void lead_calls(const char* name, const char* function, void* to, std::atomic<void*>* original) {
  void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
  void* bound = dlsym(library, function);  // what the loader would bind: also of the libraries that it needs
  link_map* map = nullptr;
  if (bound != nullptr && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) {
    if (original != nullptr) original->store(bound);
    Lead lead{map->l_addr, function, to};
    dl_iterate_phdr(lead_in, &lead);
  }
  dlclose(library);
}

int patched_slots(const void* function) {
  for (const auto& [to, slots] : last_walk)
    if (to == function) return slots;
  return 0;
}

}  // namespace pytracer::hooks
