// Threads that crash at the same moment: all of them use data that one of them has damaged.
// together THREADS DEATH
#include <pthread.h>

#include "common.h"

static pthread_barrier_t barrier;

static void* crash(void* how) {
  pthread_barrier_wait(&barrier);
  die(how);
  return NULL;
}

int main(int count, char** words) {
  must(count == 3, "words");
  int threads = atoi(words[1]);
  pthread_t thread;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads);
  for (int i = 0; i < threads; i++) must(pthread_create(&thread, NULL, crash, words[2]) == 0, "pthread_create");
  for (;;) pause();
}
