// munmap() does what it did, wherever it is called: allocators, Go's and Julia's runtimes and databases live on it.
//
// errors     refusals and their errno; a success leaves errno alone
// handler    in a signal handler on the smallest alternate stack that there may be
// vfork      in a child that shares its parent's memory
// threads    8 threads, 20,000 times each, with a forked child in between
// hole       a read in the hole ends the process
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

#include "common.h"

#define NBYTES (16 * PAGE_NBYTES)

static char* map(void) {
  char* at = mmap(NULL, NBYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(at != MAP_FAILED, "mmap");
  at[0] = 1;
  return at;
}

static int is_mapped(char* at) { return msync(at, NBYTES, MS_ASYNC) == 0; }

static void errors(void) {
  char* at = map();
  errno = 0;
  say("unaligned %d", munmap(at + 1, NBYTES));
  say(" errno %d\n", errno);
  errno = 0;
  say("empty %d", munmap(at, 0));
  say(" errno %d, still mapped %d\n", errno, is_mapped(at));
  errno = ENOTTY;
  say("whole %d", munmap(at, NBYTES));
  say(" errno %d, mapped %d\n", errno, is_mapped(at));
}

static char* of_handler;
static volatile int failures;
static void on_signal(int number) {
  (void)number;
  failures += munmap(of_handler, NBYTES) != 0;
}

static void handler(void) {
  munmap(map(), NBYTES);  // resolved by now: the dynamic linker takes more stack than there is
  char* guard = map();
  stack_t stack = {.ss_sp = guard + PAGE_NBYTES, .ss_size = (size_t)sysconf(_SC_MINSIGSTKSZ)};
  if ((long)stack.ss_size <= 0 || stack.ss_size > NBYTES - PAGE_NBYTES) stack.ss_size = MINSIGSTKSZ;
  must(mprotect(guard, PAGE_NBYTES, PROT_NONE) == 0, "mprotect");
  must(sigaltstack(&stack, NULL) == 0, "sigaltstack");
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  int mapped = 0;
  for (int i = 0; i < 100; i++) {
    of_handler = map();
    raise(SIGUSR1);
    mapped += is_mapped(of_handler);
  }
  say("%d failures, %d still mapped\n", failures, mapped);
}

static void of_child(void) {
  char* at = map();
  pid_t child = vfork();
  if (child == 0) _exit(munmap(at, NBYTES) != 0);
  int status = -1;
  waitpid(child, &status, 0);
  say("child %d, mapped %d\n", status, is_mapped(at));
}

static void* churn(void* argument) {
  (void)argument;
  for (int i = 0; i < 20000; i++)
    if (munmap(map(), NBYTES) != 0) failures = 1;
  return NULL;
}

static void threads(void) {
  pthread_t all[8];
  for (int i = 0; i < 8; i++) pthread_create(&all[i], NULL, churn, NULL);
  pid_t child = fork();
  if (child == 0) _exit(munmap(map(), NBYTES) != 0);
  int status = -1;
  waitpid(child, &status, 0);
  for (int i = 0; i < 8; i++) pthread_join(all[i], NULL);
  say("child %d, failures %d\n", status, failures);
}

static void hole(void) {
  volatile char* at = map();
  munmap((char*)at, NBYTES);
  say("%d\n", at[PAGE_NBYTES]);
}

int main(int count, char** words) {
  must(count > 1, "a mode");
  if (is(words[1], "errors")) errors();
  if (is(words[1], "handler")) handler();
  if (is(words[1], "vfork")) of_child();
  if (is(words[1], "threads")) threads();
  if (is(words[1], "hole")) hole();
  return 0;
}
