// The core has its own unwinder and does not need libgcc_s: loading that would cost every process 0.1 ms, a fifth of a small program's
// time. But tables that a program registers are known to its libgcc_s only. So the registration is interposed: a process that registers
// tables has libgcc_s, and from then on that walks its stacks.
#include "core/interpose/unwind_tables.h"

#include "core/interpose/libc.h"
#include "core/interpose/preload.h"
#include "crashsafe/unwind/native_stack.h"

#include <dlfcn.h>
#include <cstring>

namespace pytracer::core {
namespace {

constexpr const char* kLibgcc = "libgcc_s.so.1";

constinit crashsafe::Unwinder libgcc_s_unwinder{};

void use(void* libgcc) {
  auto backtrace = reinterpret_cast<decltype(libgcc_s_unwinder.backtrace)>(dlsym(libgcc, "_Unwind_Backtrace"));
  auto ip_info = reinterpret_cast<decltype(libgcc_s_unwinder.ip_info)>(dlsym(libgcc, "_Unwind_GetIPInfo"));
  auto cfa = reinterpret_cast<decltype(libgcc_s_unwinder.cfa)>(dlsym(libgcc, "_Unwind_GetCFA"));
  if (backtrace == nullptr || ip_info == nullptr || cfa == nullptr) return;
  libgcc_s_unwinder = {backtrace, ip_info, cfa};  // the same again when several threads register at once
  crashsafe::use_unwinder(libgcc_s_unwinder);
}

void* look_in(const char* image, const char* name) {
  void* handle = dlopen(image, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* found = dlsym(handle, name);
  dlclose(handle);
  return found;
}

// The function that would be called without us: of the libraries after us, or of those that the caller loaded. libgcc_s's first one ends
// with a jump to the second, which makes us the caller.
void* find(const char* name, const void* caller) {
  if (void* next = dlsym(RTLD_NEXT, name)) return next;
  Dl_info image{};
  void* found = dladdr(caller, &image) != 0 ? look_in(image.dli_fname, name) : nullptr;
  return found != nullptr ? found : look_in(kLibgcc, name);
}

void walk_by(const void* registered) {
  Dl_info image{};
  if (!preloaded || registered == nullptr || dladdr(registered, &image) == 0 || strstr(image.dli_fname, kLibgcc) == nullptr) return;
  if (void* libgcc = dlopen(image.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE)) use(libgcc);
}

}  // namespace

void use_libgcc_s() noexcept {
  if (void* libgcc = dlopen(kLibgcc, RTLD_LAZY | RTLD_NODELETE)) use(libgcc);
}

}  // namespace pytracer::core

using namespace pytracer;

// With the symbol version of libgcc_s: code linked to that calls these, and a program that looks for such a function by dlsym() gets the
// same result as untraced. The plain names are those of the linked-in unwinder.
#define PYTRACER_FRAMES(result, name, parameters)      \
  asm(".symver pytracer" #name ", " #name "@GCC_3.0"); \
  using Fn##name = result(*) parameters;               \
  PYTRACER_EXPORT __attribute__((used)) result pytracer##name parameters
#define PYTRACER_ORIGINAL(name) reinterpret_cast<Fn##name>(core::find(#name, __builtin_return_address(0)))

PYTRACER_FRAMES(void, __register_frame, (void* tables)) {
  auto original = PYTRACER_ORIGINAL(__register_frame);
  if (original != nullptr) original(tables);
  core::walk_by(reinterpret_cast<const void*>(original));
}
PYTRACER_FRAMES(void, __register_frame_info, (const void* tables, void* room)) {
  auto original = PYTRACER_ORIGINAL(__register_frame_info);
  if (original != nullptr) original(tables, room);
  core::walk_by(reinterpret_cast<const void*>(original));
}
