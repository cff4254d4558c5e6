// How threads and processes end, other than by a crash.
//
// main-leaves    the main thread ends by pthread_exit, another one calls exit
// main-crashes   the same, and the other one crashes
// cancel         a thread that waits is cancelled: its cleanup handlers run
// cancel-async   a thread that computes is cancelled
// keys           destructors of thread-specific data run
// quick          quick_exit and what at_quick_exit registered
// exit-race      several threads call exit at once
// many           2,000 threads, one after the other
// detached       detached threads, and the process ends beside them
#include <pthread.h>

#include "common.h"

static const char* mode;

static void says(void* what) { say("%s\n", (const char*)what); }

static void* waits_with_cleanup(void* nothing) {
  pthread_cleanup_push(says, "cleaned up");
  for (;;) pause();
  pthread_cleanup_pop(0);
  return nothing;
}

static void* computes(void* nothing) {
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
  for (volatile long i = 0;; i++) continue;
  return nothing;
}

static void* ends_process(void* main_thread) {
  pthread_join(*(pthread_t*)main_thread, NULL);
  if (is(mode, "main-crashes")) die("null");
  say("the last one\n");
  exit(6);
}

static pthread_key_t key;

static void* with_key(void* value) {
  pthread_setspecific(key, value);
  return NULL;
}

static pthread_barrier_t barrier;

static void* exits(void* code) {
  pthread_barrier_wait(&barrier);
  exit((int)(long)code);
}

static void* ends(void* nothing) { return nothing; }

static void at_quick(void) { say("at quick exit\n"); }

int main(int count, char** words) {
  must(count == 2, "words");
  mode = words[1];
  pthread_t thread, self = pthread_self();
  void* result = NULL;
  if (is(mode, "main-leaves") || is(mode, "main-crashes")) {
    pthread_create(&thread, NULL, ends_process, &self);
    pthread_exit(NULL);
  }
  if (is(mode, "cancel") || is(mode, "cancel-async")) {
    for (int i = 0; i < 20; i++) {
      pthread_create(&thread, NULL, is(mode, "cancel") ? waits_with_cleanup : computes, NULL);
      usleep(1000);
      pthread_cancel(thread);
      pthread_join(thread, &result);
      say("%s\n", result == PTHREAD_CANCELED ? "cancelled" : "ended");
    }
  }
  if (is(mode, "keys")) {
    pthread_key_create(&key, says);
    pthread_create(&thread, NULL, with_key, "destroyed");
    pthread_join(thread, NULL);
  }
  if (is(mode, "quick")) {
    at_quick_exit(at_quick);
    quick_exit(8);
  }
  if (is(mode, "exit-race")) {
    pthread_barrier_init(&barrier, NULL, 8);
    for (int i = 0; i < 8; i++) pthread_create(&thread, NULL, exits, (void*)4L);
    for (;;) pause();
  }
  if (is(mode, "many"))
    for (int i = 0; i < 2000; i++) {
      pthread_create(&thread, NULL, ends, NULL);
      pthread_join(thread, NULL);
    }
  if (is(mode, "detached"))
    for (int i = 0; i < 50; i++) {
      pthread_create(&thread, NULL, waits_with_cleanup, NULL);
      pthread_detach(thread);
    }
  return 0;
}
