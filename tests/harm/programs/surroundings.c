// The state that a program inherits, and what only some processes are allowed to do.
//
// inherited  descriptors, masks, limits, timers, threads, ...
// single     unshare(CLONE_NEWUSER) is refused to a process of several threads: rootless containers, sandboxes
// timers     no timer of ours answers timer_create's numbers, and none of ours survives
// names      the names of process and threads
// stdin      copies standard input to standard output
#include <dirent.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

#include "common.h"

static int entries(const char* path) {
  DIR* directory = opendir(path);
  int count = -3;  // ".", ".." and, of descriptors, this one
  if (!directory) return -1;
  while (readdir(directory)) count++;
  closedir(directory);
  return count;
}

static void inherited(void) {
  say("%d descriptors, %d threads\n", entries("/proc/self/fd"), entries("/proc/self/task") + 1);
  sigset_t blocked, waiting;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  sigpending(&waiting);
  for (int number = 1; number < NSIG; number++) {
    struct sigaction now;
    if (sigismember(&blocked, number) || sigismember(&waiting, number)) say("%d blocked or pending\n", number);
    if (sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_DFL) say("%d %s\n", number, now.sa_handler == SIG_IGN ? "ignored" : "handled");
  }
  for (int what = 0; what < RLIMIT_NLIMITS; what++) {
    struct rlimit both;
    getrlimit((__rlimit_resource_t)what, &both);
    say("limit %d: %lx %lx\n", what, (long)both.rlim_cur, (long)both.rlim_max);
  }
  for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++) {
    struct itimerval timer;
    getitimer((__itimer_which_t)which, &timer);
    say("timer %d: %ld\n", which, timer.it_value.tv_sec);
  }
  int subreaper = -1, death_signal = -1;
  prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  prctl(PR_GET_PDEATHSIG, &death_signal);
  say("subreaper %d, death signal %d, dumpable %d, keeps capabilities %d, no new privileges %d\n", subreaper, death_signal, prctl(PR_GET_DUMPABLE),
      prctl(PR_GET_KEEPCAPS), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  say("nice %d, timer slack %d, umask %o\n", getpriority(PRIO_PROCESS, 0), prctl(PR_GET_TIMERSLACK), umask(077));
  say("errno %d, thread's stack %d\n", errno, sigaltstack(NULL, &(stack_t){0}));
}

static void single(void) {
  say("threads: %d\n", entries("/proc/self/task") + 1);
  say("unshare: %s\n", unshare(CLONE_NEWUSER) ? strerror(errno) : "done");
}

static void timers(void) {
  timer_t timer;
  struct sigevent none = {.sigev_notify = SIGEV_NONE};
  char text[4096] = {0};
  int file = open("/proc/self/timers", O_RDONLY);
  say("%zd bytes of timers\n", file < 0 ? -1 : read(file, text, sizeof text));
  must(timer_create(CLOCK_MONOTONIC, &none, &timer) == 0, "timer_create");
  say("left of the alarm: %u\n", alarm(0));
}

static void names(void) {
  char name[32] = {0};
  prctl(PR_GET_NAME, name);
  say("%s %s\n", name, program_invocation_short_name);
}

static void copy(void) {
  char bytes[4096];
  ssize_t count;
  while ((count = read(0, bytes, sizeof bytes)) > 0)
    if (write(1, bytes, (size_t)count) != count) _exit(1);
}

int main(int count, char** words) {
  must(count == 2, "words");
  if (is(words[1], "inherited")) inherited();
  if (is(words[1], "single")) single();
  if (is(words[1], "timers")) timers();
  if (is(words[1], "names")) names();
  if (is(words[1], "stdin")) copy();
  return 0;
}
