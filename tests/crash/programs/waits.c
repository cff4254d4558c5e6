// Waits for children in every way, with valid and invalid arguments, and prints the results.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kWait, kWaitpid, kWait3, kWait4, kWaitid, kKinds };
static const char* const kNames[] = {"wait", "waitpid", "wait3", "wait4", "waitid"};

static pid_t child(int status) {
  pid_t pid = fork();
  if (pid == 0) {
    if (status >= 0) _exit(status);
    for (;;) pause();
  }
  return pid;
}
static pid_t ended_child(int status) {
  pid_t pid = child(status);
  siginfo_t info;
  while (syscall(SYS_waitid, P_PID, pid, &info, WEXITED | WNOWAIT, NULL) != 0) {
  }
  return pid;
}
static void end(pid_t pid) {
  kill(pid, SIGKILL);
  while (syscall(SYS_wait4, pid, NULL, 0, NULL) < 0 && errno == EINTR) {
  }
}

static long call(int kind, void* status, int options, struct rusage* usage) {
  errno = 0;
  switch (kind) {
    case kWait: return wait(status);
    case kWaitpid: return waitpid(-1, status, options);
    case kWait3: return wait3(status, options, usage);
    case kWait4: return wait4(-1, status, options, usage);
    default: return waitid(P_ALL, 0, status, WEXITED | options);
  }
}

static void show(const char* words, int kind, long result, const void* written, const struct rusage* usage) {
  const siginfo_t* info = written;
  int status = 0;
  if (written != NULL) memcpy(&status, written, sizeof status);
  printf("%s, %s: %s, errno %d, status %x", words, kNames[kind], result > 0 ? "a child" : result == 0 ? "0" : "-1", errno, status);
  if (written != NULL && kind == kWaitid)
    printf(" code %d pid %d value %x", info->si_code, info->si_pid > 0, info->si_status);
  if (usage != NULL) printf(", usage %s", usage->ru_inblock == 0x5555 ? "untouched" : "written");
  printf("\n");
  fflush(stdout);
}

static void one(const char* words, int kind, int options, pid_t of) {
  union {
    int status;
    siginfo_t info;
  } written;
  struct rusage usage;
  memset(&written, 0x55, sizeof written);
  memset(&usage, 0x55, sizeof usage);
  usage.ru_inblock = 0x5555;
  long result = call(kind, &written, options, &usage);
  show(words, kind, result, &written, kind == kWait3 || kind == kWait4 ? &usage : NULL);
  if (of > 0) end(of);
}

static int left(void) { return syscall(SYS_wait4, -1, NULL, WNOHANG, NULL) >= 0; }

static void bad_pointers(void* read_only) {
  for (int kind = 0; kind < kKinds; kind++) {
    void* const kBad[] = {(void*)8, read_only, (void*)-4096};
    for (int i = 0; i < 3; i++) {
      ended_child(3);
      long result = call(kind, kBad[i], 0, NULL);
      show("a bad pointer", kind, result, NULL, NULL);
      printf("it is reaped: %d\n", !left());
    }
    ended_child(2);
    show("no pointer", kind, call(kind, NULL, 0, NULL), NULL, NULL);
  }
  int status = 0x5555;
  ended_child(3);
  long result = wait4(-1, &status, 0, read_only);
  show("bad usage", kWait4, result, &status, NULL);
  printf("it is reaped: %d\n", !left());
}

static void* cancelled(void* raw_kind) {
  siginfo_t written;
  call((int)(long)raw_kind, &written, 0, NULL);
  return NULL;
}

static void on_alarm(int signal) { (void)signal; }

int main(void) {
  char* read_only = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction action = {.sa_handler = on_alarm};
  sigaction(SIGALRM, &action, NULL);
  for (int kind = 0; kind < kKinds; kind++) {
    one("no child", kind, 0, 0);
    if (kind != kWait) one("it runs", kind, WNOHANG, child(-1));
    ended_child(3);
    one("it ended", kind, 0, 0);
    pid_t pid = child(-1);
    struct itimerval soon = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &soon, NULL);
    one("interrupted", kind, 0, 0);
    setitimer(ITIMER_REAL, &never, NULL);
    end(pid);
    pid = child(-1);
    kill(pid, SIGKILL);
    one("killed", kind, 0, 0);
    if (kind == kWait || kind == kWaitid) continue;
    pid = child(-1);
    kill(pid, SIGSTOP);
    one("stopped", kind, WUNTRACED, pid);
  }
  ended_child(4);
  one("looked at", kWaitid, WNOWAIT, 0);
  one("taken", kWaitid, 0, 0);
  pid_t pid = ended_child(5);
  int descriptor = (int)syscall(SYS_pidfd_open, pid, 0);
  siginfo_t info = {0};
  int result = waitid((idtype_t)3, (id_t)descriptor, &info, WEXITED);
  printf("by descriptor: %d %d %d\n", result, info.si_status, info.si_pid == pid);
  bad_pointers(read_only);
  pid = child(-1);
  for (long kind = 0; kind < kKinds; kind++) {
    pthread_t thread;
    void* result = NULL;
    pthread_create(&thread, NULL, cancelled, (void*)kind);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("cancelled in %s: %d\n", kNames[kind], result == PTHREAD_CANCELED);
  }
  end(pid);
  return 0;
}
