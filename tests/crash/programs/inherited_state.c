// Prints what a process inherits, one line each: what differs under the launcher is a difference of ours.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <termios.h>
#include <unistd.h>

extern char** environ;

static void show_file(const char* path, const char* const* wanted) {
  char line[512];
  FILE* file = fopen(path, "re");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    int take = wanted == NULL;
    for (int i = 0; wanted != NULL && wanted[i] != NULL; i++) take |= strncmp(line, wanted[i], strlen(wanted[i])) == 0;
    if (take) printf("%s %s", path, line);
  }
  if (file != NULL) fclose(file);
  puts("");
}

static void show_descriptors(void) {
  for (int fd = 0; fd < 300; fd++) {
    char name[64], target[512];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, target, sizeof target - 1);
    if (length < 0) continue;
    target[length] = 0;
    printf("descriptor %d %s flags %x %x\n", fd, target, fcntl(fd, F_GETFD), fcntl(fd, F_GETFL));
  }
}

int main(int argc, char** argv) {
  show_descriptors();
  for (int i = 0; i < argc; i++) printf("argument %d '%s'\n", i, argv[i]);
  for (char** item = environ; *item != NULL; item++) printf("variable %s\n", *item);
  char* cwd = getcwd(NULL, 0);
  printf("directory %s\n", cwd != NULL ? cwd : strerror(errno));
  printf("uid %d %d gid %d %d secure %ld\n", getuid(), geteuid(), getgid(), getegid(), getauxval(AT_SECURE));
  printf("group %d session %d terminal's group %d terminal %d\n", getpgrp(), getsid(0), tcgetpgrp(0), isatty(0));
  errno = 0;
  printf("nice %d policy %d personality %x\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), personality(0xffffffff));
  printf("io priority %ld\n", syscall(SYS_ioprio_get, 1, 0));
  int death_signal = 0, subreaper = 0;
  prctl(PR_GET_PDEATHSIG, &death_signal);
  prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
  printf("death signal %d subreaper %d dumpable %d keep capabilities %d timer slack %d\n", death_signal, subreaper,
         prctl(PR_GET_DUMPABLE), prctl(PR_GET_KEEPCAPS), prctl(PR_GET_TIMERSLACK));
  for (int i = 0; i < RLIM_NLIMITS; i++) {
    struct rlimit limit;
    if (getrlimit(i, &limit) == 0) printf("limit %d %lx %lx\n", i, (long)limit.rlim_cur, (long)limit.rlim_max);
  }
  for (int i = ITIMER_REAL; i <= ITIMER_PROF; i++) {
    struct itimerval timer;
    if (getitimer(i, &timer) == 0) printf("timer %d %d\n", i, timer.it_value.tv_sec != 0);
  }
  sigset_t mask;
  sigprocmask(SIG_SETMASK, NULL, &mask);
  for (int number = 1; number < 65; number++) {
    struct sigaction action;
    int known = sigaction(number, NULL, &action) == 0;
    printf("signal %d blocked %d handler %s flags %x\n", number, sigismember(&mask, number),
           !known ? "unknown" : action.sa_handler == SIG_IGN ? "ignored" : action.sa_handler == SIG_DFL ? "default" : "caught",
           known ? (unsigned)action.sa_flags : 0);
  }
  stack_t stack;
  sigaltstack(NULL, &stack);
  printf("alternate stack %d\n", stack.ss_flags);
  static const char* const status[] = {"Name", "Umask", "TracerPid", "Groups", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "Cap", "NoNewPrivs",
                                       "Seccomp", "Speculation", "Cpus_allowed", "Mems_allowed", "THP_enabled", NULL};
  show_file("/proc/self/status", status);
  show_file("/proc/self/oom_score_adj", NULL);
  show_file("/proc/self/coredump_filter", NULL);
  show_file("/proc/self/cgroup", NULL);
  show_file("/proc/self/loginuid", NULL);
  return 3;
}
