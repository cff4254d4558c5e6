// On which stack a handler runs, and how much of it there is: garbage collectors that scan from their handler, stack unwinders.
//
// normal     SIGSEGV without SA_ONSTACK: 512 KiB of the thread's own stack
// own        SIGSEGV on the program's own alternate stack of 2 MiB
// sent       SIGUSR1 on it
// thread     the same as own, on another thread with an alternate stack of its own
// deep       a handler without SA_ONSTACK, 4 MiB deep
// asks       what sigaltstack() answers: before, inside the handler, after; that it may not be changed while in use
// disarm     SS_AUTODISARM: inside the handler there is no alternate stack
// overflow   the thread's stack overflows, and the handler on the alternate stack leaves by siglongjmp: libsigsegv, Ruby, OCaml
// raw        the stack is asked for, and set where there is none, by raw system calls; the handler checks that it runs there: Go with cgo
// fork       the alternate stack is there after fork, and none in a new thread
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>

#include "common.h"

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
enum { kRoom = 2 << 20 };
static __thread char* room;
static __thread volatile int on_own_stack;
static char* page;
static sigjmp_buf back;

static void own_stack(unsigned flags) {
  room = malloc(kRoom);
  must(sigaltstack(&(stack_t){.ss_sp = room, .ss_flags = (int)flags, .ss_size = kRoom}, NULL) == 0, "sigaltstack");
}

static __attribute__((noinline)) void needs_room(void) {
  volatile char big[512 << 10];
  for (size_t i = sizeof big; i > 0; i -= 1 << 10) big[i - 1] = 1;
  on_own_stack = room && (char*)big >= room && (char*)big < room + kRoom;
}

static __attribute__((noinline)) int needs_depth(int kilobytes) {
  volatile char frame[4096];
  memset((char*)frame, kilobytes, sizeof frame);
  return kilobytes <= 0 ? frame[5] : needs_depth(kilobytes - 4) + frame[kilobytes % 4096];
}

static void writable(int number, siginfo_t* info, void* context) {
  (void)context;
  needs_room();
  if (number == SIGSEGV) mprotect(page_of(info->si_addr), PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void writable_after_depth(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  volatile int used = needs_depth(4096);
  (void)used;
  mprotect(page_of(info->si_addr), PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void touch(int times) {
  for (int i = 0; i < times; i++) {
    mprotect(page, PAGE_NBYTES, PROT_NONE);
    *(volatile char*)page = 1;
  }
}

static void normal(void) {
  handle(SIGSEGV, writable, 0);
  touch(3);
  say("repaired\n");
}

static void own(void) {
  own_stack(0);
  handle(SIGSEGV, writable, SA_ONSTACK);
  touch(3);
  say("on its own alternate stack: %d\n", on_own_stack);
}

static void sent(void) {
  own_stack(0);
  handle(SIGUSR1, writable, SA_ONSTACK);
  raise(SIGUSR1);
  say("on its own alternate stack: %d\n", on_own_stack);
}

static void* own_on_thread(void* nothing) {
  own();
  return nothing;
}

static void thread(void) {
  pthread_t other;
  pthread_create(&other, NULL, own_on_thread, NULL);
  pthread_join(other, NULL);
}

static void deep(void) {
  handle(SIGSEGV, writable_after_depth, 0);
  touch(3);
  say("repaired\n");
}

static void print_stack(const char* when) {
  stack_t now;
  sigaltstack(NULL, &now);
  int mine = room && (char*)now.ss_sp == room;
  say("%s: %s, %zu bytes, flags %x\n", when, mine ? "its own" : now.ss_sp ? "another" : "none", now.ss_size, (unsigned)now.ss_flags);
}

static void asking(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  print_stack("inside");
  int changed = sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
  say("change inside: %s\n", changed == 0 ? "done" : strerror(errno));
  stack_t* kept = &((ucontext_t*)context)->uc_stack;
  say("in the context: %s, %zu bytes\n", (char*)kept->ss_sp == room ? "its own" : "another", kept->ss_size);
}

static void asks(void) {
  print_stack("at first");
  own_stack(0);
  print_stack("set");
  handle(SIGUSR1, asking, SA_ONSTACK);
  raise(SIGUSR1);
  sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, NULL);
  print_stack("disabled");
  say("too small: %s\n", sigaltstack(&(stack_t){.ss_sp = room, .ss_size = 100}, NULL) ? strerror(errno) : "done");
  say("bad flags: %s\n", sigaltstack(&(stack_t){.ss_sp = room, .ss_size = kRoom, .ss_flags = 0x77}, NULL) ? strerror(errno) : "done");
}

static void disarm(void) {
  own_stack(SS_AUTODISARM);
  handle(SIGUSR1, asking, SA_ONSTACK);
  for (int i = 0; i < 2; i++) {
    raise(SIGUSR1);
    print_stack("after");
  }
}

static void leaves(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  siglongjmp(back, 1);
}

static void overflows(void) {
  own_stack(0);
  handle(SIGSEGV, leaves, SA_ONSTACK);
  for (volatile int i = 0; i < 20; i++)
    if (!sigsetjmp(back, 1)) overflow(0);
  print_stack("after 20 overflows");
}

static void* asks_on_thread(void* nothing) {
  print_stack("new thread");
  return nothing;
}

static stack_t shown;

static void checks_stack(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  char here;
  if (&here < (char*)shown.ss_sp || &here >= (char*)shown.ss_sp + shown.ss_size) say("handler not on signal stack\n");
  mprotect(page_of(info->si_addr), PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void raw(void) {
  syscall(SYS_sigaltstack, NULL, &shown);
  if (shown.ss_flags & SS_DISABLE) {
    shown = (stack_t){.ss_sp = malloc(kRoom), .ss_size = kRoom};
    must(syscall(SYS_sigaltstack, &shown, NULL) == 0, "sigaltstack");
  }
  handle(SIGSEGV, checks_stack, SA_ONSTACK);
  touch(3);
  say("repaired\n");
}

static void forks(void) {
  own_stack(0);
  pthread_t other;
  pthread_create(&other, NULL, asks_on_thread, NULL);
  pthread_join(other, NULL);
  pid_t child = fork();
  if (child == 0) {
    print_stack("child");
    handle(SIGSEGV, writable, SA_ONSTACK);
    touch(1);
    _exit(on_own_stack);
  }
  int status;
  waitpid(child, &status, 0);
  say("child ran on its own alternate stack: %d\n", WEXITSTATUS(status));
}

static const struct {
  const char* name;
  void (*run)(void);
} modes[] = {
    {"normal", normal}, {"own", own},       {"sent", sent},          {"thread", thread}, {"deep", deep},
    {"asks", asks},     {"disarm", disarm}, {"overflow", overflows}, {"fork", forks},    {"raw", raw},
};

int main(int count, char** words) {
  page = page_without_access();
  for (size_t i = 0; count > 1 && i < sizeof modes / sizeof *modes; i++)
    if (is(modes[i].name, words[1])) return modes[i].run(), 0;
  return UNAVAILABLE;
}
