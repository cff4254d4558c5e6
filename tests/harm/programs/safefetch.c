// A crash reporter that reads memory that may not be mapped, as OpenJDK does while it writes hs_err files
// (SafeFetch): the read faults inside the handler of the first fault, and is repaired.
//
// safefetch HOW [onstack]: how the second fault is repaired:
// same      by the same handler, after SIGSEGV was unblocked
// other     by another handler, installed by the first
// jump      by siglongjmp out of another handler
// nodefer   by the same handler, installed with SA_NODEFER
#include <setjmp.h>
#include <ucontext.h>

#include "common.h"

extern char fetch_here[], fetch_failed[];
static const char* how;
static volatile int depth;
static sigjmp_buf back;

static __attribute__((noinline)) int fetch(volatile int* address) {
  int value;
  __asm__ volatile(
      ".globl fetch_here, fetch_failed\n"
      "fetch_here: movl (%1), %0\n jmp 1f\n"
      "fetch_failed: movl $-1, %0\n1:"
      : "=&r"(value)
      : "r"(address));
  return value;
}

static int repaired(void* context) {
  greg_t* rip = &((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
  if (*rip != (greg_t)fetch_here) return 0;
  *rip = (greg_t)fetch_failed;
  return 1;
}

static void other(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  if (!repaired(context)) _exit(99);
}

static void jump(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  siglongjmp(back, 1);
}

static void reporter(int number, siginfo_t* info, void* context) {
  if (repaired(context)) return;
  if (depth++) _exit(98);
  say("report of signal %d at %p\n", number, info->si_addr);
  if (is(how, "other")) handle(SIGSEGV, other, SA_ONSTACK);
  if (is(how, "jump")) handle(SIGSEGV, jump, SA_ONSTACK);
  sigset_t segv;
  sigemptyset(&segv);
  sigaddset(&segv, SIGSEGV);
  if (!is(how, "nodefer")) sigprocmask(SIG_UNBLOCK, &segv, NULL);
  for (long i = 0; i < 3; i++) {
    if (!is(how, "jump"))
      say("fetched %d\n", fetch((int*)(16 + PAGE_NBYTES * i)));
    else if (sigsetjmp(back, 1) == 0)
      say("fetched %d\n", *(volatile int*)16);
    else
      say("fetched -1\n");
  }
  say("end of report\n");
  _exit(3);
}

int main(int count, char** words) {
  must(count > 1, "words");
  how = words[1];
  static char room[1 << 16];
  must(sigaltstack(&(stack_t){.ss_sp = room, .ss_size = sizeof room}, NULL) == 0, "sigaltstack");
  handle(SIGSEGV, reporter, (count > 2 ? SA_ONSTACK : 0) | (is(how, "nodefer") ? SA_NODEFER : 0));
  die("null");
  return 0;
}
