// Another process truncates or removes the tracer's files. Untraced there are none.
//
// truncate   every file that is mapped writable and shared is cut to nothing (a clean-up job, `truncate -s 0`)
// remove     they are removed
// unmap      they are unmapped: a program that unmaps mappings it does not know (checkpointing, forkservers)
// Then the program forks, and ends in order or dies; after unmap it dies at once.
#include <sys/wait.h>

#include "common.h"

static void each_mapped_file(const char* how) {
  char line[1024], path[512];
  unsigned long from, to;
  FILE* maps = fopen("/proc/self/maps", "r");
  must(maps != NULL, "maps");
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx rw-s %*s %*s %*s %511s", &from, &to, path) != 3 || path[0] != '/') continue;
    if (is(how, "truncate") && truncate(path, 0) != 0) continue;
    if (is(how, "remove")) unlink(path);
    if (is(how, "unmap")) munmap((void*)from, to - from);
  }
  fclose(maps);
}

int main(int count, char** words) {
  must(count > 1, "words");
  each_mapped_file(words[1]);
  for (int i = 0; i < 3 && !is(words[1], "unmap"); i++) {
    pid_t child = fork();
    if (child == 0) exit(i);
    int status;
    waitpid(child, &status, 0);
    say("child %x\n", status);
  }
  if (count > 2) die(words[2]);
  return 3;
}
