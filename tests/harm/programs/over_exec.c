// What a program passes on across exec: nohup, shells' trap '', daemons, job schedulers.
//
// ignored   signals that are ignored stay so; the third generation is started without our environment, and sees the kernel's truth
// blocked   signals that are blocked stay so, where the environment stays (without it: a known hole of docs/reference/crash-safety.md)
// handled   handlers are gone
// raised    the ignored ones are raised after exec, and do nothing; a real fault kills
#include "common.h"

extern char** environ;
static const int faults[] = {SIGABRT, SIGTRAP, SIGSEGV, SIGFPE, SIGBUS, SIGILL, SIGHUP, SIGTERM, SIGINT, SIGQUIT, SIGUSR1, SIGPIPE, SIGSYS, SIGXCPU};
enum { kFaults = sizeof faults / sizeof *faults };

static void show(const char* generation) {
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  say("%s:", generation);
  for (int number = 1; number < NSIG; number++) {
    struct sigaction now;
    if (sigaction(number, NULL, &now) != 0) continue;
    if (now.sa_handler == SIG_IGN)
      say(" %d ignored", number);
    else if (now.sa_handler != SIG_DFL)
      say(" %d handled", number);
    if (sigismember(&blocked, number)) say(" %d blocked", number);
  }
  say("\n");
}

static void handler(int number, siginfo_t* info, void* context) { (void)number, (void)info, (void)context; }

int main(int count, char** words) {
  must(count > 1, "words");
  const char* mode = words[1];
  const char* generation = count > 2 ? words[2] : "1";
  if (is(generation, "1")) {
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < kFaults; i++) {
      sigaddset(&set, faults[i]);
      if (is(mode, "ignored") || is(mode, "raised")) signal(faults[i], SIG_IGN);
      if (is(mode, "handled")) handle(faults[i], handler, 0);
    }
    if (is(mode, "blocked")) sigprocmask(SIG_SETMASK, &set, NULL);
    show("first");
    execve("/proc/self/exe", (char*[]){"over_exec", (char*)mode, "2", NULL}, environ);
  }
  if (is(generation, "2")) {
    show("after exec");
    if (is(mode, "raised"))
      for (int i = 0; i < kFaults; i++) raise(faults[i]);
    if (is(mode, "blocked")) return 0;
    execve("/proc/self/exe", (char*[]){"over_exec", (char*)mode, "3", NULL}, (char*[]){NULL});
  }
  show("after exec without environment");
  if (is(mode, "raised")) die("null");
  return 0;
}
