// AddressSanitizer beside us. Its shared runtime refuses to start when another library precedes it, as every preloaded one does: its
// malloc might be bypassed. We define no allocator, so that check is disabled.
//
// Disabled by the function that the runtime calls for its defaults (compiler-rt asan_flags.cpp, InitializeFlags; before
// AsanCheckDynamicRTPrereqs of asan_linux.cpp): not by ASAN_OPTIONS, which the program and its children would see, and not by
// preloading the runtime first, which would put every child of the job under AddressSanitizer, too. What the user sets in
// ASAN_OPTIONS is applied after it and takes precedence. A program that defines the function itself precedes us, and its definition is used.
#include "core/interpose/sanitizers.h"
#include "core/interpose/preload.h"

#include <dlfcn.h>

PYTRACER_EXPORT const char* __asan_default_options() { return "verify_asan_link_order=0"; }

bool pytracer::core::thread_sanitizer_precedes_us() noexcept {
  // Linked into the program (clang's default) it precedes any preloaded library; as a shared library it follows us.
  static const bool found = dlsym(RTLD_DEFAULT, "__tsan_init") != nullptr && dlsym(RTLD_NEXT, "__tsan_init") == nullptr;
  return found;
}
