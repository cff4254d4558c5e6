// The core has an unwinder of its own, and no need of libgcc_s: loading that in every process would cost 0.1 ms, a fifth of what a small
// program takes in all. But tables that a program registers are known to its libgcc_s only. So we stand before the registration: a process
// that does it has libgcc_s, and from then on its stacks are walked by that.
#include "core/interpose/unwind_tables.h"

#include "core/interpose/libc.h"
#include "core/interpose/preload.h"
#include "crashsafe/unwind/native_stack.h"

#include <dlfcn.h>
#include <cstring>

namespace pytracer::recorder {
namespace {

constexpr const char* kLibgcc = "libgcc_s.so.1";

constinit crashsafe::Unwinder libgccs{};

void use(void* libgcc) {
  auto backtrace = reinterpret_cast<decltype(libgccs.backtrace)>(dlsym(libgcc, "_Unwind_Backtrace"));
  auto ip_info = reinterpret_cast<decltype(libgccs.ip_info)>(dlsym(libgcc, "_Unwind_GetIPInfo"));
  if (backtrace == nullptr || ip_info == nullptr) return;
  libgccs = {backtrace, ip_info};  // the same again when several threads register at once
  crashsafe::use_unwinder(libgccs);
}

void* look_in(const char* image, const char* name) {
  void* handle = dlopen(image, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* found = dlsym(handle, name);
  dlclose(handle);
  return found;
}

// Whose the function would be without us: of the libraries after us, else of those that the caller brought. libgcc_s's first one ends with a
// jump to the second, as which we are the caller.
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

}  // namespace pytracer::recorder

using namespace pytracer;

// Under the version that they have in libgcc_s: whoever was linked to that comes here, and a program that asks by dlsym() whether there is
// such a function gets the answer that it would have gotten. The names themselves are those of the unwinder that is linked in.
#define PYTRACER_FRAMES(result, name, parameters)      \
  asm(".symver pytracer" #name ", " #name "@GCC_3.0"); \
  using Fn##name = result(*) parameters;               \
  PYTRACER_EXPORT __attribute__((used)) result pytracer##name parameters
#define PYTRACER_THEIRS(name) reinterpret_cast<Fn##name>(recorder::find(#name, __builtin_return_address(0)))

PYTRACER_FRAMES(void, __register_frame, (void* tables)) {
  auto theirs = PYTRACER_THEIRS(__register_frame);
  if (theirs != nullptr) theirs(tables);
  recorder::walk_by(reinterpret_cast<const void*>(theirs));
}
PYTRACER_FRAMES(void, __register_frame_info, (const void* tables, void* room)) {
  auto theirs = PYTRACER_THEIRS(__register_frame_info);
  if (theirs != nullptr) theirs(tables, room);
  recorder::walk_by(reinterpret_cast<const void*>(theirs));
}
