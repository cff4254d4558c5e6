// Many short-lived children: shells, build systems, job launchers.
// storm COUNT fork|exec|vfork|spawn|kill|crash|clone|threads|nested
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "common.h"

extern char** environ;
static int count;
static const char* how;
static atomic_int wrong;
static char* const nothing_to_say[] = {"true", NULL};

static pid_t start(int i) {
  pid_t child;
  if (is(how, "spawn")) return posix_spawn(&child, "/bin/true", NULL, NULL, nothing_to_say, environ) == 0 ? child : -1;
  child = is(how, "vfork") ? vfork() : is(how, "clone") ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
  if (child != 0) return child;
  if (is(how, "exec") || is(how, "vfork")) execve("/bin/true", nothing_to_say, environ);
  if (is(how, "kill")) kill(getpid(), SIGKILL);
  if (is(how, "crash")) die("null");
  if (is(how, "nested")) {
    pid_t grandchild = fork();
    if (grandchild == 0) _exit(0);
    waitpid(grandchild, NULL, 0);
  }
  _exit(i % 7);
}

static void one(int i) {
  int status;
  pid_t child = start(i);
  must(child > 0, "child");
  if (waitpid(child, &status, 0) != child)
    wrong++;
  else if (is(how, "kill"))
    wrong += !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL;
  else if (is(how, "crash"))
    wrong += !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV;
  else if (is(how, "exec") || is(how, "vfork") || is(how, "spawn"))
    wrong += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  else
    wrong += !WIFEXITED(status) || WEXITSTATUS(status) != i % 7;
}

static void* part(void* first) {
  for (int i = (int)(long)first; i < count; i += 4) one(i);
  return NULL;
}

int main(int argument_count, char** words) {
  must(argument_count == 3, "words");
  count = atoi(words[1]);
  how = words[2];
  pthread_t thread[4];
  if (is(how, "threads")) {
    for (long i = 0; i < 4; i++) pthread_create(&thread[i], NULL, part, (void*)i);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  } else {
    for (int i = 0; i < count; i++) one(i);
  }
  say("%d children, %d with another status\n", count, wrong);
  return 0;
}
