// kill() and its relatives behave as libc's wherever they may be called: shells, supervisors and timeout(1) call them in signal handlers,
// on small stacks, and between vfork and exec.
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#include "common.h"

static pid_t waiting(void) {
  pid_t child = fork();
  if (child != 0) return child;
  for (;;) pause();
}

static void reap(pid_t child) {
  int status = 0;
  must(waitpid(child, &status, 0) == child, "waitpid");
  say("ended by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
}

static volatile pid_t target;
static volatile int count;
static void kills(int number) {
  (void)number;
  errno = 123;
  int result = kill(target, SIGTERM);
  if (result != 0 || errno != 123) _exit(9);
  count++;
}

static void* kill_in_thread(void* argument) {
  for (int i = 0; i < 200; i++)
    if (kill(*(pid_t*)argument, SIGUSR1) != 0) return "failed";
  return NULL;
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "errno";
  if (is(how, "errno")) {
    pid_t none = 99999999;
    errno = 0;
    say("%d %d\n", kill(none, SIGKILL), errno);
    say("%d %d\n", kill(getpid(), 999), errno);
    say("%d %d\n", kill(getpid(), -1), errno);
    say("%d %d\n", killpg(none, SIGTERM), errno);
    say("%d %d\n", sigqueue(none, SIGTERM, (union sigval){0}), errno);
    say("%d %d\n", tgkill(none, none, SIGTERM), errno);
    say("%ld %d\n", syscall(424, -1, SIGTERM, NULL, 0), errno);
    say("%d\n", pthread_kill(pthread_self(), 999));
    errno = 77;
    say("%d %d\n", kill(getpid(), 0), errno);
    say("%d %d\n", kill(getpid(), SIGCHLD), errno);
    pid_t child = waiting();
    say("%d %d\n", kill(child, SIGKILL), errno);
    reap(child);
    say("%d\n", kill(child, SIGKILL));
  } else if (is(how, "handler")) {  // on the smallest stack that a handler may have
    stack_t small = {.ss_sp = malloc((size_t)MINSIGSTKSZ + 2048), .ss_size = (size_t)MINSIGSTKSZ + 2048};
    must(sigaltstack(&small, NULL) == 0, "sigaltstack");
    struct sigaction action = {.sa_handler = kills, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 20; i++) {
      target = waiting();
      raise(SIGALRM);
      reap(target);
    }
    say("%d\n", count);
  } else if (is(how, "vfork")) {
    for (int i = 0; i < 20; i++) {
      pid_t child = waiting(), helper = vfork();
      if (helper == 0) _exit(kill(child, SIGKILL) != 0);
      reap(helper);
      reap(child);
    }
  } else if (is(how, "group")) {
    pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      waiting();
      kill(0, SIGTERM);
      _exit(5);
    }
    reap(child);
  } else if (is(how, "itself")) {
    for (int way = 0; way < 6; way++) {
      pid_t child = fork();
      if (child == 0) {
        if (way == 0) kill(getpid(), SIGKILL);
        if (way == 1) raise(SIGKILL);
        if (way == 2) pthread_kill(pthread_self(), SIGKILL);
        if (way == 3) tgkill(getpid(), (pid_t)syscall(SYS_gettid), SIGKILL);
        if (way == 4) sigqueue(getpid(), SIGKILL, (union sigval){0});
        if (way == 5) syscall(SYS_kill, getpid(), SIGKILL);
        _exit(5);
      }
      reap(child);
    }
  } else if (is(how, "stop")) {
    pid_t child = fork();
    if (child == 0) {
      raise(SIGSTOP);
      _exit(4);
    }
    int status = 0;
    must(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "stop");
    kill(child, SIGCONT);
    reap(child);
  } else if (is(how, "threads")) {  // all threads of a process send at once
    pid_t child = fork();
    if (child == 0) {
      signal(SIGUSR1, SIG_IGN);
      for (;;) pause();
    }
    struct timespec begun = {0, 50000000};
    nanosleep(&begun, NULL);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) must(pthread_create(&threads[i], NULL, kill_in_thread, &child) == 0, "pthread_create");
    for (int i = 0; i < 8; i++) {
      void* failed = NULL;
      pthread_join(threads[i], &failed);
      say("%s\n", failed != NULL ? (char*)failed : "sent");
    }
    kill(child, SIGKILL);
    reap(child);
  }
  return 0;
}
