// AddressSanitizer beside us. Its shared runtime refuses to start when another library stands before it, as every preloaded
// one does: it fears that its malloc would be passed by. We define no allocator, so that check is told to be quiet.
//
// Told by the function that the runtime asks for its defaults (compiler-rt asan_flags.cpp, InitializeFlags; before
// AsanCheckDynamicRTPrereqs of asan_linux.cpp): not by ASAN_OPTIONS, which the program and its children would see, and not by
// preloading the runtime first, which would put every child of the job under AddressSanitizer, too. What the user sets in
// ASAN_OPTIONS comes after it and wins. A program that defines the function itself is found before us, and has its own way.
#include "core/interpose/sanitizers.h"
#include "core/interpose/preload.h"

#include <dlfcn.h>

PYTRACER_EXPORT const char* __asan_default_options() { return "verify_asan_link_order=0"; }

bool pytracer::recorder::thread_sanitizer_stands_before_us() noexcept {
  // Linked into the program (clang's default) it comes before any preloaded library; as a shared library behind us.
  static const bool found = dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr && dlsym(RTLD_NEXT, "__tsan_init") == nullptr;
  return found;
}
