// Shared by the programs of this folder: ways to die, and a check whether another thread sleeps in the kernel.
#pragma once
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define PAGE_NBYTES 4096L
#define UNAVAILABLE 77  // not possible on this machine: the row is skipped

static inline int is(const char* word, const char* other) { return strcmp(word, other) == 0; }

// For what must not fail on any machine: a failure means that the row is wrong, not the tracer.
static inline void must(int fine, const char* what) {
  if (fine) return;
  perror(what);
  _exit(UNAVAILABLE);
}

// Unbuffered, so that what was printed before a crash is seen in any case.
static inline void say(const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (write(1, line, (size_t)length) != length) _exit(UNAVAILABLE);
}

static inline int overflow(int depth) {
  volatile char frame[4096];
  frame[0] = (char)depth;
  return depth < 0 ? 0 : overflow(depth + 1) + frame[0];
}

// null, abort, ud2, int3, divide, stack, sent
static inline void die(const char* how) {
  if (is(how, "null")) *(volatile int*)8 = 1;
  if (is(how, "abort")) abort();
  if (is(how, "ud2")) __asm__ volatile("ud2");
  if (is(how, "int3")) __asm__ volatile("int3");
  if (is(how, "divide")) __asm__ volatile("xor %%edx, %%edx; xor %%ecx, %%ecx; mov $1, %%eax; div %%ecx" ::: "eax", "ecx", "edx");
  if (is(how, "stack")) overflow(0);
  if (is(how, "sent")) kill(getpid(), SIGSEGV);
}

// True when the kernel shows this thread of ours as sleeping.
static inline int asleep(pid_t tid) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  text[length > 0 ? length : 0] = 0;
  char* name_ends = strrchr(text, ')');
  return name_ends && name_ends[1] && name_ends[2] == 'S';
}

static inline char* page_without_access(void) {
  char* page = mmap(NULL, PAGE_NBYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(page != MAP_FAILED, "mmap");
  return page;
}

static inline char* page_of(const void* address) { return (char*)((long)address & ~(PAGE_NBYTES - 1)); }

static inline void handle(int number, void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
  must(sigaction(number, &action, NULL) == 0, "sigaction");
}
