// Functions of libdl and libpthread, for wheels.
//
// glibc 2.34 moved them into libc, under new versions. A library that asks for the old versions in libdl and libpthread makes every process
// load both, 0.1 ms each, also where they are empty. So the core's references are weak and without a version, and --wrap leads its calls
// here: where the program has not loaded those two (a small tool, glibc before 2.34), they are loaded at the first call.
#include <dlfcn.h>
#include <pthread.h>
#include <atomic>
#include <cerrno>

extern "C" {
// libc's own, for NSS; no longer there in glibc 2.34.
void* __libc_dlopen_mode(const char* name, int mode) __attribute__((weak));
void* __libc_dlsym(void* handle, const char* name) __attribute__((weak));
}

namespace {

constexpr const char *kDl = "libdl.so.2", *kThreads = "libpthread.so.0";
constexpr int kOpenedByProgram = static_cast<int>(0x80000000u);  // __RTLD_DLOPEN: without it, dlclose() and errors misbehave

void* find(void* linked, std::atomic<void*>& found, const char* library, const char* name) {
  if (linked != nullptr) return linked;
  void* known = found.load(std::memory_order_relaxed);
  if (known != nullptr || __libc_dlopen_mode == nullptr || __libc_dlsym == nullptr) return known;
  void* handle = __libc_dlopen_mode(library, RTLD_NOW | RTLD_GLOBAL | kOpenedByProgram);
  if (handle != nullptr) known = __libc_dlsym(handle, name);
  found.store(known, std::memory_order_relaxed);  // the same again when several threads come here at once
  return known;
}

}  // namespace

// `absent`: what a caller gets where neither library can be loaded.
#define PYTRACER_MOVED(library, result, absent, name, parameters, ...)                                   \
  extern "C" decltype(::name) __real_##name __attribute__((weak));                                       \
  extern "C" __attribute__((visibility("hidden"))) result __wrap_##name parameters;                      \
  result __wrap_##name parameters {                                                                      \
    static constinit std::atomic<void*> found{nullptr};                                                  \
    void* original = find(reinterpret_cast<void*>(__real_##name), found, library, #name);                \
    return original != nullptr ? reinterpret_cast<result(*) parameters>(original)(__VA_ARGS__) : absent; \
  }

PYTRACER_MOVED(kDl, void*, nullptr, dlsym, (void* handle, const char* name), handle, name)
PYTRACER_MOVED(kDl, void*, nullptr, dlvsym, (void* handle, const char* name, const char* version), handle, name, version)
PYTRACER_MOVED(kDl, int, 0, dladdr, (const void* addr, Dl_info* info), addr, info)
PYTRACER_MOVED(kDl, int, -1, dlinfo, (void* handle, int request, void* result), handle, request, result)
PYTRACER_MOVED(kDl, int, -1, dlclose, (void* handle), handle)
PYTRACER_MOVED(kThreads, void*, nullptr, pthread_getspecific, (pthread_key_t key), key)
PYTRACER_MOVED(kThreads, int, ENOSYS, pthread_setspecific, (pthread_key_t key, const void* value), key, value)
PYTRACER_MOVED(kThreads, int, ENOSYS, pthread_key_create, (pthread_key_t * key, void (*destructor)(void*)), key, destructor)
PYTRACER_MOVED(kThreads, int, ENOSYS, pthread_mutex_trylock, (pthread_mutex_t * mutex), mutex)
PYTRACER_MOVED(kThreads, int, ENOSYS, pthread_once, (pthread_once_t * once, void (*function)()), once, function)
PYTRACER_MOVED(kThreads, int, ENOSYS, pthread_getattr_np, (pthread_t thread, pthread_attr_t* attributes), thread, attributes)
PYTRACER_MOVED(kThreads, int, ENOSYS, pthread_attr_getstack, (const pthread_attr_t* attributes, void** start, size_t* nbytes), attributes, start,
               nbytes)
