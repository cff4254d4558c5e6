// GNU libsigsegv: a fault is repaired, a stack overflow is left by a jump. recovers fault|overflow
#include <setjmp.h>
#include <sigsegv.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static char* page;
static int faults;
static volatile int overflows;
static sigjmp_buf back;
static char room[1 << 16];

static int repair(void* address, int serious) {
  (void)serious;
  if ((char*)address < page || (char*)address >= page + 4096) return 0;
  faults++;
  return mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0;
}

static void leave(int emergency, stackoverflow_context_t context) {
  (void)emergency, (void)context;
  overflows++;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  siglongjmp(back, 1);
}

static int deep(volatile int* n) {
  volatile int frame[100];
  frame[0] = *n + 1;
  return deep(frame) + frame[0];
}

int main(int count, char** words) {
  if (count > 1 && !strcmp(words[1], "fault")) {
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigsegv_install_handler(repair);
    for (int i = 0; i < 100; i++) {
      mprotect(page, 4096, PROT_NONE);
      *(volatile char*)page = 1;
    }
  } else {
    stackoverflow_install_handler(leave, room, sizeof room);
    for (volatile int i = 0; i < 3; i++) {
      volatile int zero = 0;
      if (!sigsetjmp(back, 1)) deep(&zero);
    }
  }
  printf("%d faults, %d overflows\n", faults, overflows);
  return 0;
}
