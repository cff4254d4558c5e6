// Null checks by signal: the handler leaves by a jump, thousands of times, as in Common Lisp, R and Perl's safe signals.
// leaves_handler plain|saved THREADS: plain is longjmp with SA_NODEFER, saved is siglongjmp that restores the mask; 0: the main thread.
#include <pthread.h>
#include <setjmp.h>

#include "common.h"

enum { kFaults = 3000 };
static __thread sigjmp_buf back;
static int plain;

static void leaves(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  if (plain) longjmp(back, 1);
  siglongjmp(back, 1);
}

static void* faults(void* result) {
  volatile long recovered = 0;
  for (volatile int i = 0; i < kFaults; i++) {
    if (!(plain ? setjmp(back) : sigsetjmp(back, 1))) die("null");
    recovered++;
  }
  *(long*)result = recovered;
  return NULL;
}

int main(int count, char** words) {
  must(count == 3, "words");
  plain = is(words[1], "plain");
  int threads = atoi(words[2]);
  handle(SIGSEGV, leaves, plain ? SA_NODEFER : 0);
  long recovered[16] = {0}, sum = 0;
  pthread_t thread[16];
  if (threads == 0) faults(&recovered[0]);
  for (int i = 0; i < threads; i++) pthread_create(&thread[i], NULL, faults, &recovered[i]);
  for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < 16; i++) sum += recovered[i];
  say("recovered %ld\n", sum);
  return 0;
}
