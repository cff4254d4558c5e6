// A debugger starts a program (one that attaches later is a known hole): it gets each signal once, with its own siginfo, and may
// suppress it.
// debugged DEATH [swallow|handled]: how the child dies; that the debugger keeps the signal from it; that a handler repairs it.
#include <errno.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "common.h"

static void skips(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

int main(int count, char** words) {
  must(count > 1, "words");
  const char* option = count > 2 ? words[count - 1] : "";
  if (is(words[1], "child")) {
    if (is(option, "handled")) handle(SIGILL, skips, 0);
    die(words[2]);
    return 9;
  }
  pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    execl("/proc/self/exe", "debugged", "child", words[1], option, NULL);
    _exit(8);
  }
  int status;
  waitpid(child, &status, 0);  // exec stops a traced process once
  ptrace(PTRACE_CONT, child, NULL, 0L);
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    siginfo_t info = {0};
    ptrace(PTRACE_GETSIGINFO, child, NULL, &info);
    say("stopped by signal %d code %d\n", WSTOPSIG(status), info.si_code);
    ptrace(PTRACE_CONT, child, NULL, is(option, "swallow") ? 0L : (long)WSTOPSIG(status));
  }
  say("%s %d\n", WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return 0;
}
