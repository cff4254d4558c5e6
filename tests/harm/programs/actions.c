// Flags and masks of sigaction, and what programs do with the previous action.
//
// reset          SA_RESETHAND: the first fault goes to the handler, the second ends the process
// reraise        the handler restores SIG_DFL and returns: the fault recurs and kills (faulthandler, Abseil, glog)
// raise-default  the handler restores SIG_DFL and raises the signal itself
// chain          the handler installs the previous one and returns (as ASan, Breakpad and Go do)
// leaves         the handler ends the process with its own status
// exits          the handler calls exit(), and what atexit() registered runs
// ignored-fault  SIGSEGV is ignored: a real fault kills all the same
// blocked-fault  SIGSEGV is blocked: the same
// blocked-raw    blocked by a raw system call
// query          sigaction() answers what the program has set, for every signal
// masks          inside a handler exactly its own signal and sa_mask are blocked
// nodefer        a handler that raises its own signal nests with SA_NODEFER and does not without
// restart        a read is restarted or fails with EINTR, according to SA_RESTART, for every signal that we watch
// abort-returns  abort() ends the process although its handler returns
// abort-jumps    unless the handler jumps
// defaults       the default action of each signal: one child each
// legacy         signal(), bsd_signal(), sigset(), siginterrupt()
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>

#include "common.h"

static volatile int count, depth, deepest;
static struct sigaction before;
static jmp_buf back;

static void once(int number, siginfo_t* info, void* context) {
  (void)context;
  say("signal %d code %d address %p\n", number, info->si_code, info->si_code > 0 ? info->si_addr : NULL);
}

static void restore_and_return(int number, siginfo_t* info, void* context) {
  once(number, info, context);
  signal(number, SIG_DFL);
}

static void restore_and_raise(int number, siginfo_t* info, void* context) {
  restore_and_return(number, info, context);
  raise(number);
}

static void to_the_one_before(int number, siginfo_t* info, void* context) {
  once(number, info, context);
  sigaction(number, &before, NULL);
}

static void leaves(int number, siginfo_t* info, void* context) {
  once(number, info, context);
  _exit(42);
}

static void at_exit(void) { say("at exit\n"); }

static void exits(int number, siginfo_t* info, void* context) {
  once(number, info, context);
  exit(43);
}

static void counts(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  count++;
}

static void jumps(int number, siginfo_t* info, void* context) {
  once(number, info, context);
  longjmp(back, 1);
}

static void with(void (*handler)(int, siginfo_t*, void*), int flags) {
  handle(SIGSEGV, handler, flags);
  die("null");
}

static void reset(void) { with(once, SA_RESETHAND); }
static void reraise(void) { with(restore_and_return, 0); }
static void raise_default(void) { with(restore_and_raise, 0); }
static void leave(void) { with(leaves, 0); }

static void chain(void) {
  handle(SIGSEGV, leaves, 0);
  struct sigaction mine = {.sa_sigaction = to_the_one_before, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &mine, &before);
  die("null");
}

static void exit_from_handler(void) {
  atexit(at_exit);
  with(exits, 0);
}

static void ignored_fault(void) {
  signal(SIGSEGV, SIG_IGN);
  kill(getpid(), SIGSEGV);
  say("ignored what was sent\n");
  die("null");
}

static void block_all(sigset_t* old) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, old);
}

static void blocked_fault(void) {
  handle(SIGSEGV, counts, 0);
  block_all(NULL);
  die("null");
}

static void blocked_raw(void) {
  handle(SIGSEGV, counts, 0);
  unsigned long all = ~0UL;
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, 8);
  die("null");
}

static void query(void) {
  for (int number = 1; number < NSIG; number++) {
    struct sigaction was, mine = {.sa_sigaction = counts, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER}, now;
    sigaddset(&mine.sa_mask, SIGUSR1);
    sigaddset(&mine.sa_mask, SIGSEGV);
    if (sigaction(number, NULL, &was) != 0) {
      say("%d: %s\n", number, strerror(errno));
      continue;
    }
    const char* first = was.sa_handler == SIG_DFL ? "default" : was.sa_handler == SIG_IGN ? "ignored" : "handled";
    int set = sigaction(number, &mine, NULL);
    sigaction(number, NULL, &now);
    say("%d: %s flags %x, set %d: %s flags %x mask %d%d%d\n", number, first, (unsigned)was.sa_flags, set,
        now.sa_sigaction == counts ? "mine" : "another", (unsigned)now.sa_flags, sigismember(&now.sa_mask, SIGUSR1),
        sigismember(&now.sa_mask, SIGSEGV), sigismember(&now.sa_mask, SIGUSR2));
  }
}

static void print_mask(int number, siginfo_t* info, void* context) {
  (void)info, (void)context;
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  char text[NSIG + 1] = {0};
  for (int i = 1; i < NSIG; i++) text[i - 1] = sigismember(&now, i) == 1 ? '1' : '0';
  say("in handler of %d: %s\n", number, text);
}

static void masks(void) {
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGTERM, SIGINT, SIGUSR1};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    struct sigaction action = {.sa_sigaction = print_mask, .sa_flags = SA_SIGINFO | (i % 2 ? SA_NODEFER : 0)};
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaddset(&action.sa_mask, i % 3 ? SIGSEGV : SIGTERM);
    sigaction(numbers[i], &action, NULL);
    raise(numbers[i]);
  }
  print_mask(0, NULL, NULL);
}

static void nests(int number, siginfo_t* info, void* context) {
  (void)info, (void)context;
  depth++;
  if (depth > deepest) deepest = depth;
  if (++count < 3) raise(number);
  depth--;
}

static void nodefer(void) {
  static const int numbers[] = {SIGSEGV, SIGTERM, SIGUSR1, SIGABRT};
  for (int i = 0; i < 8; i++) {
    count = depth = deepest = 0;
    handle(numbers[i / 2], nests, i % 2 ? SA_NODEFER : 0);
    raise(numbers[i / 2]);
    say("signal %d: %d times, %d deep\n", numbers[i / 2], count, deepest);
  }
}

static pid_t reader;

static void* interrupts(void* number) {
  while (!asleep(reader)) usleep(500);
  syscall(SYS_tgkill, getpid(), reader, (int)(long)number);
  return NULL;
}

static void* writes(void* fd) {
  while (!count || !asleep(reader)) usleep(500);
  if (write((int)(long)fd, "x", 1) != 1) _exit(UNAVAILABLE);
  return NULL;
}

static void restart(void) {
  static const int numbers[] = {SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGSEGV, SIGBUS, SIGABRT, SIGCHLD};
  reader = (pid_t)syscall(SYS_gettid);
  int ends[2];
  must(pipe(ends) == 0, "pipe");
  for (int i = 0; i < 16; i++) {
    int number = numbers[i / 2], flags = i % 2 ? SA_RESTART : 0;
    char byte;
    pthread_t interrupter, writer;
    count = 0;
    handle(number, counts, flags);
    pthread_create(&interrupter, NULL, interrupts, (void*)(long)number);
    if (flags) pthread_create(&writer, NULL, writes, (void*)(long)ends[1]);
    long result = read(ends[0], &byte, 1);
    say("signal %d, %s: %s, handled %d times\n", number, flags ? "SA_RESTART" : "no flag", result == 1 ? "restarted" : strerror(errno), count);
    pthread_join(interrupter, NULL);
    if (flags) pthread_join(writer, NULL);
  }
}

static void abort_returns(void) {
  handle(SIGABRT, once, 0);
  abort();
}

static void abort_jumps(void) {
  handle(SIGABRT, jumps, SA_NODEFER);
  for (volatile int i = 0; i < 3; i++)
    if (!setjmp(back)) abort();
  say("aborted three times\n");
}

static void defaults(void) {
  for (int number = 1; number < NSIG; number++) {
    if (number == SIGSTOP || number == SIGTSTP || number == SIGTTIN || number == SIGTTOU) continue;
    pid_t child = fork();
    if (child == 0) {
      raise(number);
      _exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    say("%d: %s %d\n", number, WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
}

static void plain(int number) { say("handled %d\n", number); }

static void legacy(void) {
  say("before: %d\n", signal(SIGSEGV, plain) == SIG_DFL);
  raise(SIGSEGV);
  extern sighandler_t bsd_signal(int, sighandler_t);
  say("then: %d\n", bsd_signal(SIGSEGV, SIG_DFL) == plain);
  say("then: %d\n", sysv_signal(SIGTERM, plain) == SIG_DFL);
  raise(SIGTERM);
  say("reset: %d\n", signal(SIGTERM, SIG_IGN) == SIG_DFL);
  struct sigaction now;
  signal(SIGINT, plain);
  siginterrupt(SIGINT, 1);
  sigaction(SIGINT, NULL, &now);
  say("interrupts: %d\n", !(now.sa_flags & SA_RESTART));
  say("invalid: %d\n", signal(SIGKILL, plain) == SIG_ERR);
}

static const struct {
  const char* name;
  void (*run)(void);
} modes[] = {
    {"reset", reset},
    {"reraise", reraise},
    {"raise-default", raise_default},
    {"chain", chain},
    {"leaves", leave},
    {"exits", exit_from_handler},
    {"ignored-fault", ignored_fault},
    {"blocked-fault", blocked_fault},
    {"blocked-raw", blocked_raw},
    {"query", query},
    {"masks", masks},
    {"nodefer", nodefer},
    {"restart", restart},
    {"abort-returns", abort_returns},
    {"abort-jumps", abort_jumps},
    {"defaults", defaults},
    {"legacy", legacy},
};

int main(int argument_count, char** words) {
  for (size_t i = 0; argument_count > 1 && i < sizeof modes / sizeof *modes; i++)
    if (is(modes[i].name, words[1])) return modes[i].run(), 0;
  return UNAVAILABLE;
}
