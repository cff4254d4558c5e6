// Compiled with a sanitizer, whose runtime must be the first library of the process.
// sanitized [overflow|use-after-free|undefined|race|null|fork]
#include <pthread.h>
#include <sys/wait.h>

#include "common.h"

static volatile int shared;

static void* adds(void* nothing) {
  for (int i = 0; i < 1000; i++) shared = shared + 1;
  return nothing;
}

int main(int count, char** words) {
  const char* mode = count > 1 ? words[1] : "";
  char* volatile memory = malloc(16);
  pthread_t thread;
  say("begin\n");
  if (is(mode, "overflow")) memory[16 + (count > 5)] = 1;
  free(memory);
  if (is(mode, "use-after-free")) memory[3] = 1;
  if (is(mode, "undefined")) say("%d\n", (0x7fffffff - (count > 5)) + count);
  if (is(mode, "race")) {
    pthread_create(&thread, NULL, adds, NULL);
    adds(NULL);
    pthread_join(thread, NULL);
  }
  if (is(mode, "fork")) {
    pid_t child = fork();
    if (child == 0) _exit(5);
    int status;
    waitpid(child, &status, 0);
    say("child %x\n", status);
  }
  die(mode);
  say("end\n");
  return 0;
}
