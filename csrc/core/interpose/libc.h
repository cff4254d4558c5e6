// libc's own functions, behind our interposed ones.
#pragma once
#include <dlfcn.h>

namespace pytracer::core {

/// The next definition of `name` after this library; null when there is none.
template <class F>
F next_symbol(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

}  // namespace pytracer::core

/// `PYTRACER_REAL(waitpid)(...)`: resolved at first use, which the constructor makes early.
#define PYTRACER_REAL(name)                                                                   \
  ([]() {                                                                                     \
    static decltype(&::name) found = ::pytracer::core::next_symbol<decltype(&::name)>(#name); \
    return found;                                                                             \
  }())
