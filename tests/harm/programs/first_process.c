// The first process of a PID namespace, as in a container: the kernel drops signals with the default action, except for its own faults.
// first_process DEATH|raise|term|child
#include <sys/wait.h>

#include "common.h"

int main(int count, char** words) {
  must(count == 2, "words");
  say("first: %d\n", getpid() == 1);
  if (is(words[1], "child")) {
    pid_t child = fork();
    if (child == 0) die("null");
    int status;
    waitpid(child, &status, 0);
    say("child: %x\n", status);
  }
  if (is(words[1], "raise")) raise(SIGSEGV);
  if (is(words[1], "term")) kill(getpid(), SIGTERM);
  die(words[1]);
  say("survived\n");
  return 42;
}
