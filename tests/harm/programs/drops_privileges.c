// A server that starts as root and changes its user: nothing that the tracer does afterwards may need root.
// drops_privileges null|fork|exit|exec
#include <grp.h>
#include <sys/wait.h>

#include "common.h"

enum { kNobody = 65534 };

int main(int count, char** words) {
  must(count == 2, "words");
  must(setgroups(0, NULL) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0, "setuid");
  say("uid %d\n", (int)getuid());
  if (is(words[1], "fork")) {
    for (int i = 0; i < 3; i++) {
      pid_t child = fork();
      if (child == 0) {
        if (i == 1) die("null");
        exit(i);
      }
      int status;
      waitpid(child, &status, 0);
      say("child %x\n", status);
    }
  }
  if (is(words[1], "exec")) execl("/bin/echo", "echo", "executed", (char*)NULL);
  die(words[1]);
  return 3;
}
