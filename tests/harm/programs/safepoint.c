// A safepoint: the collector protects a page, each thread faults on it and waits inside its handler until all have arrived, as in Julia's
// and .NET's runtimes. Handlers of several threads run at the same time, and wait for each other.
// safepoint THREADS ROUNDS
#include <pthread.h>
#include <stdatomic.h>

#include "common.h"

static char* page;
static atomic_int arrived;
static int threads, rounds;
static pthread_barrier_t between;

static void at_safepoint(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  int all = (atomic_fetch_add(&arrived, 1) / threads + 1) * threads;
  while (atomic_load(&arrived) < all) usleep(200);
  mprotect(page, PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void* works(void* nothing) {
  for (int round = 0; round < rounds; round++) {
    if (pthread_barrier_wait(&between) == PTHREAD_BARRIER_SERIAL_THREAD) mprotect(page, PAGE_NBYTES, PROT_NONE);
    pthread_barrier_wait(&between);
    *(volatile char*)page = 1;
  }
  return nothing;
}

int main(int count, char** words) {
  must(count == 3, "words");
  threads = atoi(words[1]);
  rounds = atoi(words[2]);
  page = page_without_access();
  handle(SIGSEGV, at_safepoint, SA_ONSTACK);
  pthread_barrier_init(&between, NULL, (unsigned)threads);
  pthread_t thread[64];
  for (int i = 0; i < threads; i++) must(pthread_create(&thread[i], NULL, works, NULL) == 0, "pthread_create");
  for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  say("%d threads, %d rounds, %s\n", threads, rounds, arrived == threads * rounds ? "each arrived each time" : "not all arrived");
  return 0;
}
