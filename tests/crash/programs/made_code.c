// Calls a function through code that it generates, as a JIT compiler does, with or without registered unwind tables. As a library it
// is a third-party compiler: `-DLIBRARY`, and the program that loads it has no libgcc_s.
// usage: made_code [LIBRARY] registered|unregistered
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void run(int with_tables);

#if defined(LIBRARY) || !defined(LOADER)
#if !defined(__x86_64__)
#error "the code is x86-64's"
#endif
void __register_frame(void* tables);

// sub $8, %rsp; call *%rdi; add $8, %rsp; ret
static const unsigned char code[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x08, 0xc3};

struct __attribute__((packed)) {
  struct __attribute__((packed)) {
    unsigned length, id;
    unsigned char version, augmentation, code_align, data_align, return_column, program[7];
  } cie;
  struct __attribute__((packed)) {
    unsigned length, cie;
    unsigned long from, nbytes;
    unsigned char program[4];
  } fde;
  unsigned end;
} tables = {
    // The address of the caller's frame is %rsp + 8; the return address lies 8 below it.
    {16, 0, 1, 0, 1, 0x78, 16, {0x0c, 7, 8, 0x80 | 16, 1, 0, 0}},
    // After four bytes: %rsp + 16.
    {24, 0, 0, sizeof code, {0x40 | 4, 0x0e, 16, 0}},
    0,
};

static void __attribute__((noinline)) crash(void) { *(volatile int*)0 = 0; }

void __attribute__((noinline)) run(int with_tables) {
  unsigned char* made = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(made, code, sizeof code);
  tables.fde.cie = (unsigned)((char*)&tables.fde.cie - (char*)&tables.cie);
  tables.fde.from = (unsigned long)made;
  if (with_tables) __register_frame(&tables);
  printf("%p\n", (void*)(made + 5));  // inside of the call
  fflush(stdout);
  ((void (*)(void (*)(void)))made)(crash);
  puts("");
}
#endif

#ifndef LIBRARY
int main(int argc, char** argv) {
  void (*call)(int) = NULL;
#ifdef LOADER
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library != NULL) call = (void (*)(int))dlsym(library, "run");
#else
  call = run;
#endif
  if (call == NULL) return 3;
  call(strcmp(argv[argc - 1], "registered") == 0);
  return 0;
}
#endif
