// The program that gdb runs.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static void skip(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

int main(int count, char** words) {
  const char* mode = count > 1 ? words[1] : "";
  if (!strcmp(mode, "crash")) *(volatile int*)8 = 1;
  if (!strcmp(mode, "abort")) abort();
  if (!strcmp(mode, "handled")) {
    struct sigaction action = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &action, NULL);
    __asm__ volatile("ud2");
    puts("goes on");
  }
  return 3;
}
