// wait*() behaves as the kernel's: supervisors and shells rely on every detail.
#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "common.h"

#define UNTOUCHED 0x5555

static int status;
static struct rusage usage;

static void print(const char* what, pid_t result, pid_t child) {
  say("%s: %s, status %x\n", what, result == child ? "the child" : result == 0 ? "none" : result < 0 ? strerror(errno) : "another", status);
  status = UNTOUCHED;
  errno = 0;
}

static pid_t child_that(int code, int signal_number) {
  pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (signal_number > 0) raise(signal_number);
  if (signal_number < 0) pause();
  _exit(code);
}

static void wait_until_ended(pid_t child) {
  siginfo_t info;
  waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
}

static void interrupted(int number, siginfo_t* info, void* context) { (void)number, (void)info, (void)context; }

int main(void) {
  void* nowhere = (void*)8;
  status = UNTOUCHED;
  print("nobody", waitpid(-1, &status, WNOHANG), -2);
  print("nobody, wait", wait(&status), -2);
  print("not a child", waitpid(1, &status, 0), -2);
  print("bad options", waitpid(-1, &status, 0x1000), -2);

  pid_t child = child_that(0, -1);
  print("runs", waitpid(child, &status, WNOHANG), child);
  print("runs, wait3", wait3(&status, WNOHANG, &usage), child);
  print("runs, wait4", wait4(child, &status, WNOHANG, &usage), child);
  siginfo_t info = {.si_pid = UNTOUCHED};
  say("runs, waitid: %d pid %d\n", waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG), info.si_pid);
  handle(SIGALRM, interrupted, 0);
  setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 50000}}, NULL);
  print("interrupted", waitpid(child, &status, 0), child);
  kill(child, SIGSTOP);
  print("stopped", waitpid(child, &status, WUNTRACED), child);
  kill(child, SIGCONT);
  print("continued", waitpid(child, &status, WCONTINUED), child);
  kill(child, SIGKILL);
  print("killed", waitpid(child, &status, 0), child);

  child = child_that(3, 0);
  print("ended", wait3(&status, 0, &usage), child);
  child = child_that(0, SIGSEGV);
  print("crashed", wait4(child, &status, 0, NULL), child);
  child = child_that(5, 0);
  memset(&info, 0, sizeof info);
  say("waitid: %d", waitid(P_ALL, 0, &info, WEXITED));
  say(" code %d status %d signal %d %d\n", info.si_code, info.si_status, info.si_signo, info.si_pid == child);

  child = child_that(6, 0);
  wait_until_ended(child);
  print("bad pointer", waitpid(-1, nowhere, 0), child);
  child = child_that(6, 0);
  wait_until_ended(child);
  print("bad usage", wait4(-1, &status, 0, nowhere), child);
  child = child_that(6, 0);
  wait_until_ended(child);
  int failed = waitid(P_ALL, 0, nowhere, WEXITED);
  say("bad info: %d %s\n", failed, strerror(errno));
  while (waitpid(-1, NULL, 0) > 0) continue;
  child = child_that(7, 0);
  print("no status wanted", waitpid(child, NULL, 0), child);
  child = child_that(7, 0);
  say("waitid without info: %d\n", waitid(P_ALL, 0, NULL, WEXITED));

  signal(SIGCHLD, SIG_IGN);
  child = child_that(8, 0);
  print("children ignored", waitpid(child, &status, 0), child);
  return 0;
}
