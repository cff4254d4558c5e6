/* Preloaded by tests/native: ends the process with status 99 when a thread on its alternate signal stack allocates, maps memory or
   takes a lock. The crash handler runs there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

void* __libc_malloc(size_t);
void __libc_free(void*);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

static void check(const char* what) {
  stack_t stack;
  if (syscall(SYS_sigaltstack, NULL, &stack) != 0 || !(stack.ss_flags & SS_ONSTACK)) return;
  char text[64] = "watch_allocations: the handler called ";
  strcat(text, what);
  strcat(text, "\n");
  syscall(SYS_write, 2, text, strlen(text));
  syscall(SYS_exit_group, 99);
}

void* malloc(size_t n) { return check("malloc"), __libc_malloc(n); }
void free(void* p) {
  check("free");
  __libc_free(p);
}
void* calloc(size_t n, size_t m) { return check("calloc"), __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { return check("realloc"), __libc_realloc(p, n); }
void* memalign(size_t a, size_t n) { return check("memalign"), __libc_memalign(a, n); }
void* aligned_alloc(size_t a, size_t n) { return check("aligned_alloc"), __libc_memalign(a, n); }
int posix_memalign(void** out, size_t a, size_t n) {
  check("posix_memalign");
  *out = __libc_memalign(a, n);
  return *out != NULL ? 0 : ENOMEM;
}
void* mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  check("mmap");
  return (void*)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
int munmap(void* at, size_t n) {
  check("munmap");
  return (int)syscall(SYS_munmap, at, n);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static int (*real)(pthread_mutex_t*);
  check("pthread_mutex_lock");
  if (real == NULL) real = (int (*)(pthread_mutex_t*))dlsym(RTLD_NEXT, "pthread_mutex_lock");
  return real(mutex);
}
