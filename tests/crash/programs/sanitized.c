// Acts by its argument; compiled with a sanitizer. As a library: touch().
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int is(const char* word, const char* other) { return strcmp(word, other) == 0; }

static void* worker(void* unused) {
  char* memory = malloc(10);
  memset(memory, 1, 10);
  free(memory);
  return unused;
}

int touch(int freed) {
  volatile char* memory = malloc(32);
  memory[3] = 3;
  if (freed) free((void*)memory);
  int value = memory[3];
  if (!freed) free((void*)memory);
  return value;
}

int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "ends";
  puts("begins");
  fflush(stdout);
  if (is(how, "use after free")) return touch(1);
  if (is(how, "null")) *(volatile int*)0 = 1;
  if (is(how, "abort")) abort();
  if (is(how, "leak")) {
    char* volatile lost = malloc(32);
    lost = NULL;
  }
  if (is(how, "threads")) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(threads + i, NULL, worker, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  }
  if (is(how, "fork")) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) exit(7);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
  }
  if (is(how, "exec")) execl(argv[0], argv[0], "ends", NULL);
  if (is(how, "shell")) return system("exit 5") >> 8;
  puts("ends");
  return 0;
}
