// Sent signals: their siginfo, how they queue, and which thread gets them.
//
// info       kill, tgkill, sigqueue, a timer, a child: code, value and sender
// queue      each real-time signal is queued with its value, in order: MPI libraries, POSIX timers, JVMs use them
// pending    a blocked SIGSEGV is pending, is reported as such, and is delivered when it is unblocked
// sigwait    blocked signals that we watch are taken by sigwait, sigtimedwait and signalfd
// thread     a signal for one thread reaches that thread, one for the process any that does not block it
// children   SIGCHLD is delivered once for each child, and wait finds these children and no others
// kill NAME  dies of it
#include <errno.h>
#include <pthread.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>

#include "common.h"

static volatile int handled;
static volatile pthread_t handled_by;

static void print_info(int number, siginfo_t* info, void* context) {
  (void)context;
  handled++;
  const char* who = info->si_code == SI_TIMER || info->si_code > 0 ? "-" : info->si_pid == getpid() ? "itself" : "another";
  say("signal %d code %d value %d from %s uid %d\n", number, info->si_code, info->si_code == SI_QUEUE || info->si_code == SI_TIMER ? info->si_int : 0,
      who, info->si_code <= 0 && info->si_code != SI_TIMER ? (int)info->si_uid == (int)getuid() : 1);
}

static void info(void) {
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGTERM, SIGINT, SIGABRT, SIGTRAP, SIGUSR1, SIGHUP, SIGXCPU};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    handle(numbers[i], print_info, 0);
    kill(getpid(), numbers[i]);
    raise(numbers[i]);
    sigqueue(getpid(), numbers[i], (union sigval){.sival_int = 4711});
  }
  handle(SIGTERM, print_info, 0);
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGTERM, .sigev_value.sival_int = 12};
  must(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create");
  int before = handled;
  timer_settime(timer, 0, &(struct itimerspec){.it_value = {0, 1000}}, NULL);
  while (handled == before) usleep(200);
}

static void queue(void) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (int number = SIGRTMIN; number <= SIGRTMAX; number++) handle(number, print_info, 0);
  for (int value = 0; value < 3; value++)
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) sigqueue(getpid(), number, (union sigval){.sival_int = number * 10 + value});
  pthread_sigmask(SIG_UNBLOCK, &all, NULL);
  say("%d handled\n", handled);
}

static void pending(void) {
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGABRT, SIGTRAP, SIGTERM};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    sigset_t one, now;
    handle(numbers[i], print_info, 0);
    sigemptyset(&one);
    sigaddset(&one, numbers[i]);
    sigprocmask(SIG_BLOCK, &one, NULL);
    kill(getpid(), numbers[i]);
    sigpending(&now);
    say("pending %d, handled %d\n", sigismember(&now, numbers[i]), handled);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    say("handled %d\n", handled);
  }
}

static void by_sigwait(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGSEGV);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  int number;
  siginfo_t what;
  kill(getpid(), SIGSEGV);
  say("sigwait: %d", sigwait(&set, &number));
  say(" signal %d\n", number);
  sigqueue(getpid(), SIGTERM, (union sigval){.sival_int = 5});
  say("sigwaitinfo: %d", sigwaitinfo(&set, &what));
  say(" value %d\n", what.si_int);
  int result = sigtimedwait(&set, &what, &(struct timespec){0, 1000000});
  say("sigtimedwait: %d %s\n", result, strerror(errno));
  int file = signalfd(-1, &set, SFD_CLOEXEC);
  struct signalfd_siginfo read_info = {0};
  kill(getpid(), SIGSEGV);
  if (read(file, &read_info, sizeof read_info) < 0) say("signalfd: %s\n", strerror(errno));
  say("signalfd: signal %u code %d\n", read_info.ssi_signo, read_info.ssi_code);
}

static void notes_thread(int number, siginfo_t* what, void* context) {
  (void)number, (void)what, (void)context;
  handled_by = pthread_self();
  handled++;
}

static pthread_barrier_t barrier;

static void* does_not_block(void* nothing) {
  sigset_t segv;
  sigemptyset(&segv);
  sigaddset(&segv, SIGSEGV);
  sigaddset(&segv, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &segv, NULL);
  pthread_barrier_wait(&barrier);
  while (handled < 4) usleep(200);
  return nothing;
}

static void to_thread(void) {
  static const int numbers[] = {SIGSEGV, SIGTERM};
  pthread_t thread;
  sigset_t both;
  sigemptyset(&both);
  for (int i = 0; i < 2; i++) {
    handle(numbers[i], notes_thread, 0);
    sigaddset(&both, numbers[i]);
  }
  pthread_barrier_init(&barrier, NULL, 2);
  pthread_sigmask(SIG_BLOCK, &both, NULL);
  pthread_create(&thread, NULL, does_not_block, NULL);
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 4; i++) {
    if (i < 2)
      pthread_kill(thread, numbers[i]);
    else
      kill(getpid(), numbers[i % 2]);
    while (handled <= i) usleep(200);
    say("signal %d: %s thread\n", numbers[i % 2], pthread_equal(handled_by, thread) ? "the right" : "another");
  }
  pthread_join(thread, NULL);
}

static void children(void) {
  handle(SIGCHLD, notes_thread, SA_RESTART);
  int ended = 0, status;
  for (int i = 0; i < 50; i++) {
    if (fork() == 0) _exit(i);
    while (waitpid(-1, &status, 0) < 0) continue;
    ended += WEXITSTATUS(status) == i;
  }
  say("%d children, %d signals, then %s\n", ended, handled, waitpid(-1, NULL, 0) < 0 ? strerror(errno) : "one more");
}

static void killed(const char* name) {
  static const struct {
    const char* name;
    int number;
  } signals[] = {{"SEGV", SIGSEGV}, {"TERM", SIGTERM}, {"INT", SIGINT},   {"HUP", SIGHUP},   {"QUIT", SIGQUIT},    {"KILL", SIGKILL},
                 {"PIPE", SIGPIPE}, {"ABRT", SIGABRT}, {"BUS", SIGBUS},   {"FPE", SIGFPE},   {"ILL", SIGILL},      {"TRAP", SIGTRAP},
                 {"XCPU", SIGXCPU}, {"SYS", SIGSYS},   {"ALRM", SIGALRM}, {"USR1", SIGUSR1}, {"VTALRM", SIGVTALRM}};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    if (is(signals[i].name, name)) kill(getpid(), signals[i].number);
  for (;;) pause();
}

int main(int count, char** words) {
  must(count > 1, "words");
  if (is(words[1], "info")) info();
  if (is(words[1], "queue")) queue();
  if (is(words[1], "pending")) pending();
  if (is(words[1], "sigwait")) by_sigwait();
  if (is(words[1], "thread")) to_thread();
  if (is(words[1], "children")) children();
  if (is(words[1], "kill")) killed(words[2]);
  return 0;
}
