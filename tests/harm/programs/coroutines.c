// Coroutines.
//
// sigaltstack  made by a signal on an alternate stack, and left by jumps: GNU Pth, QEMU's coroutine-sigaltstack.c
// context      made by makecontext: a fault on each of them is repaired: PHP's and Ruby's fibers
// crash        the same, and a fault that is not repaired
#include <setjmp.h>
#include <ucontext.h>

#include "common.h"

enum { kCoroutines = 4, kRounds = 5, kRoom = 64 << 10, kNumbers = 64 };
static sigjmp_buf resume[kCoroutines], scheduler;
static int starting;
static ucontext_t contexts[kCoroutines], main_context;
static char* page;
static const char* mode;

static void body(int id) {
  volatile int mine[kNumbers];
  for (int i = 0; i < kNumbers; i++) mine[i] = id * 1000 + i;
  for (;;) {
    if (!sigsetjmp(resume[id], 0)) siglongjmp(scheduler, 1);
    for (int i = 0; i < kNumbers; i++) {
      if (mine[i] == id * 1000 + i) continue;
      say("coroutine %d: its stack was overwritten\n", id);
      _exit(4);
    }
  }
}

static void becomes_coroutine(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  int id = starting;
  if (sigsetjmp(resume[id], 0)) body(id);
}

static void by_sigaltstack(void) {
  handle(SIGUSR2, becomes_coroutine, SA_ONSTACK);
  for (starting = 0; starting < kCoroutines; starting++) {
    sigaltstack(&(stack_t){.ss_sp = malloc(kRoom), .ss_size = kRoom}, NULL);
    raise(SIGUSR2);
    sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
  }
  for (volatile int round = 0; round < kRounds; round++)
    for (volatile int id = 0; id < kCoroutines; id++)
      if (!sigsetjmp(scheduler, 0)) siglongjmp(resume[id], 1);
  say("%d coroutines, %d rounds\n", kCoroutines, kRounds);
}

static void writable(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  mprotect(page_of(info->si_addr), PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void fiber(int id) {
  for (;;) {
    if (is(mode, "crash") && id == 2) die("null");
    mprotect(page, PAGE_NBYTES, PROT_NONE);
    page[0] = (char)id;
    swapcontext(&contexts[id], &main_context);
  }
}

static void by_makecontext(void) {
  if (!is(mode, "crash")) handle(SIGSEGV, writable, 0);
  if (is(mode, "crash")) mprotect(page, PAGE_NBYTES, PROT_READ | PROT_WRITE);
  for (int id = 0; id < kCoroutines; id++) {
    getcontext(&contexts[id]);
    contexts[id].uc_stack = (stack_t){.ss_sp = malloc(kRoom), .ss_size = kRoom};
    makecontext(&contexts[id], (void (*)(void))fiber, 1, is(mode, "crash") ? 2 : id);
  }
  for (int round = 0; round < kRounds; round++)
    for (int id = 0; id < kCoroutines; id++) swapcontext(&main_context, &contexts[id]);
  say("%d fibers, %d rounds\n", kCoroutines, kRounds);
}

int main(int count, char** words) {
  mode = count > 1 ? words[1] : "";
  page = page_without_access();
  if (is(mode, "sigaltstack"))
    by_sigaltstack();
  else
    by_makecontext();
  return 0;
}
