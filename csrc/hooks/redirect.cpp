#include "redirect.h"

#include "../recorder/core.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace pytracer::hooks {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kJumpSlot = R_X86_64_JUMP_SLOT, kGlobDat = R_X86_64_GLOB_DAT;
#else
constexpr uint32_t kJumpSlot = R_AARCH64_JUMP_SLOT, kGlobDat = R_AARCH64_GLOB_DAT;
#endif

struct Work {
  const std::vector<Redirection>& redirections;
  uintptr_t own[2];  // load addresses of our libraries
  int changed = 0;
};

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

int each_library(dl_phdr_info* info, size_t, void* argument) {
  auto& work = *static_cast<Work*>(argument);
  const ElfW(Dyn)* dynamic = nullptr;
  uintptr_t base = info->dlpi_addr, relro = 0, relro_end = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_DYNAMIC) dynamic = reinterpret_cast<const ElfW(Dyn)*>(base + segment.p_vaddr);
    if (segment.p_type == PT_GNU_RELRO) {
      // As the loader protects it: the last page may hold variables as well, and is left writable.
      relro = page_of(base + segment.p_vaddr);
      relro_end = page_of(base + segment.p_vaddr + segment.p_memsz);
    }
  }
  if (dynamic == nullptr || base == work.own[0] || base == work.own[1] || strstr(info->dlpi_name, "linux-vdso") != nullptr) return 0;
  uintptr_t tables[2] = {};
  size_t sizes[2] = {}, first[2] = {};
  for (; dynamic->d_tag != DT_NULL; dynamic++) {
    if (dynamic->d_tag == DT_JMPREL) tables[0] = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_PLTRELSZ) sizes[0] = dynamic->d_un.d_val;
    if (dynamic->d_tag == DT_RELA) tables[1] = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_RELASZ) sizes[1] = dynamic->d_un.d_val;
    // The linker puts those without a symbol first: in libtorch_cpu 225 970 of 321 106, which nobody needs to bring into memory.
    if (dynamic->d_tag == DT_RELACOUNT) first[1] = dynamic->d_un.d_val;
  }
  for (int t = 0; t < 2; t++) {
    if (tables[t] == 0) continue;
    const auto* entries = reinterpret_cast<const ElfW(Rela)*>(tables[t]);
    for (size_t i = first[t]; i < sizes[t] / sizeof *entries; i++) {
      auto type = static_cast<uint32_t>(ELF64_R_TYPE(entries[i].r_info));
      if (type != kJumpSlot && type != kGlobDat) continue;
      auto* slot = reinterpret_cast<void**>(base + entries[i].r_offset);
      void* value = std::atomic_ref(*slot).load(std::memory_order_relaxed);
      for (const Redirection& one : work.redirections)
        if (value == one.from && value != nullptr) work.changed += store(slot, one.to, relro, relro_end);
    }
  }
  return 0;
}

uintptr_t library_of(const void* symbol) {
  Dl_info info{};
  return dladdr(symbol, &info) != 0 ? reinterpret_cast<uintptr_t>(info.dli_fbase) : 0;
}

}  // namespace

int redirect(const std::vector<Redirection>& redirections) {
  Work work{redirections, {library_of(reinterpret_cast<void*>(each_library)), library_of(reinterpret_cast<void*>(pytracer_recording))}};
  dl_iterate_phdr(each_library, &work);
  return work.changed;
}

}  // namespace pytracer::hooks
