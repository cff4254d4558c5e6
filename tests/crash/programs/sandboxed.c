// Installs a seccomp filter that ends it with SIGSYS for any unexpected system call, then performs one action.
//   sandboxed HOW WHAT     HOW: prctl, syscall, syscall-prctl, all-threads, strict, none, question, refused
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define KILL(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

// Only the system calls of this program.
static struct sock_filter own_calls[] = {
    LOAD, ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_munmap),
    ALLOW(SYS_mprotect), ALLOW(SYS_rt_sigreturn), ALLOW(SYS_futex), ALLOW(SYS_clone), ALLOW(SYS_clone3), ALLOW(SYS_wait4), ALLOW(SYS_waitid),
    ALLOW(SYS_set_robust_list), ALLOW(SYS_rseq), ALLOW(SYS_madvise), ALLOW(SYS_newfstatat), ALLOW(SYS_fstat), ALLOW(SYS_rt_sigprocmask),
    ALLOW(SYS_rt_sigaction), ALLOW(SYS_gettid), ALLOW(SYS_getpid), ALLOW(SYS_tgkill), ALLOW(SYS_getrandom),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
// Enough for the loader of a program that it executes, not for a recorder.
static struct sock_filter not_a_recorders[] = {
    LOAD, KILL(SYS_fallocate), KILL(SYS_sigaltstack), KILL(SYS_uname), KILL(SYS_unlinkat), KILL(SYS_mkdirat), KILL(SYS_rt_sigaction),
    KILL(SYS_getppid), KILL(SYS_getuid), KILL(SYS_prctl), KILL(SYS_statx), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

static void say(const char* words, long value) {
  char line[100];
  write(1, line, snprintf(line, sizeof line, "%s %lx\n", words, value));
}

static void confine(const char* how, const char* what) {
  struct sock_fprog program = {sizeof own_calls / sizeof *own_calls, own_calls};
  if (!strcmp(what, "exec")) program = (struct sock_fprog){sizeof not_a_recorders / sizeof *not_a_recorders, not_a_recorders};
  long done = 0;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  errno = 0;
  if (!strcmp(how, "prctl")) done = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
  if (!strcmp(how, "syscall")) done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
  if (!strcmp(how, "syscall-prctl")) done = syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
  if (!strcmp(how, "all-threads")) done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
  if (!strcmp(how, "strict")) done = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
  if (!strcmp(how, "question")) done = prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL);
  program.len = 0;
  if (!strcmp(how, "refused")) done = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
  say("confined", done);
  say("errno", errno);
}

static int wake[2];
static void* run_thread(void* argument) {
  char byte;
  if (argument != NULL) read(wake[0], &byte, 1);
  say("thread", argument != NULL);
  return NULL;
}
static void on_fault(int signal) {
  say("handled", signal);
  _exit(4);
}

static int act(const char* what) {
  if (!strcmp(what, "return")) {
    printf("not flushed yet");
    return 3;
  }
  if (!strcmp(what, "_exit")) _exit(5);
  if (!strcmp(what, "exit-thread")) syscall(SYS_exit, 6);
  if (!strcmp(what, "crash") || !strcmp(what, "handled")) *(volatile int*)0 = 1;
  if (!strcmp(what, "abort")) abort();
  if (!strcmp(what, "raise")) raise(SIGTERM);
  if (!strcmp(what, "fork")) {
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
      say("child", 0);
      exit(3);
    }
    if (waitpid(child, &status, 0) == child) say("status", status);
    if ((child = fork()) == 0) *(volatile int*)0 = 1;
    siginfo_t info = {0};
    if (waitid(P_PID, child, &info, WEXITED) == 0) say("status", info.si_status);
  }
  if (!strcmp(what, "thread")) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, NULL) == 0) pthread_join(thread, NULL);
  }
  if (!strcmp(what, "actions")) {
    static const int kAsked[] = {SIGSEGV, SIGABRT, SIGTERM, SIGINT, SIGUSR1};
    for (int i = 0; i < 5; i++) {
      struct sigaction action;
      sigset_t mask;
      sigaction(kAsked[i], NULL, &action);
      say("handler", (long)action.sa_handler == (long)on_fault ? 2 : (long)action.sa_handler);
      say("blocks", sigismember(&action.sa_mask, SIGSEGV));
      sigprocmask(SIG_BLOCK, NULL, &mask);
      say("blocked", sigismember(&mask, SIGSEGV) + sigismember(&mask, SIGUSR1));
    }
  }
  return 0;
}

int main(int count, char** words) {
  if (count == 2) return puts(words[1]), 7;  // executed below the filter
  pthread_t before;
  pipe(wake);
  if (!strcmp(words[2], "threads-end")) pthread_create(&before, NULL, run_thread, wake);
  if (!strcmp(words[2], "handled") || !strcmp(words[2], "actions")) signal(SIGSEGV, on_fault);
  if (!strcmp(words[2], "actions")) {
    struct sigaction action = {.sa_handler = on_fault};
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigset_t mask;
    sigfillset(&mask);
    sigprocmask(SIG_BLOCK, &mask, NULL);
  }
  confine(words[1], words[2]);
  if (!strcmp(words[2], "threads-end")) {
    write(wake[1], "", 1);
    pthread_join(before, NULL);
  }
  if (!strcmp(words[2], "exec")) execl("/proc/self/exe", words[0], "executed", NULL);
  return act(words[2]);
}
