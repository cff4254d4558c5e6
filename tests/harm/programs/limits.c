// A program can use its resources up to the same limits under the tracer.
//
// descriptors N      with RLIMIT_NOFILE N: the number of the first one, how many can be opened, and that it continues without any
// all-closed         closes every descriptor that it did not open, and continues: daemons
// file-size          with RLIMIT_FSIZE 4 KiB: writes up to there, then gets SIGXFSZ, then EFBIG
// memory-lock        mlockall of what is and what will be, within RLIMIT_MEMLOCK
// lock-limited       the same where the limit is too low for more than a page
// threads N          so many threads at the same time
// processes          with RLIMIT_NPROC at the current number: fork fails, and the program reports it
// stack              with RLIMIT_STACK 256 KiB over exec
// cpu                RLIMIT_CPU: SIGXCPU, handled
// mappings           how many mappings fit below vm.max_map_count, to the next 100
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "common.h"

static void limit(int what, rlim_t value) {
  struct rlimit both = {value, value};
  must(setrlimit(what, &both) == 0, "setrlimit");
}

static void descriptors(int most) {
  int opened = 0, first = -1, fd;
  limit(RLIMIT_NOFILE, (rlim_t)most);
  while ((fd = open("/dev/null", O_RDONLY)) >= 0) {
    if (first < 0) first = fd;
    opened++;
  }
  say("first %d, %d opened, %s\n", first, opened, strerror(errno));
  pid_t child = fork();
  if (child == 0) _exit(4);
  int status;
  waitpid(child, &status, 0);
  say("child %x\n", status);
}

static void all_closed(void) {
  syscall(SYS_close_range, 3, ~0U, 0);
  char* memory = malloc(1 << 20);
  memset(memory, 1, 1 << 20);
  int fd = open("/dev/null", O_RDONLY);
  say("first %d\n", fd);
  pid_t child = fork();
  if (child == 0) die("null");
  int status;
  waitpid(child, &status, 0);
  say("child %x\n", status);
  close(0), close(1), close(2);
  die("abort");
}

static void exceeded(int number, siginfo_t* info, void* context) {
  (void)info, (void)context;
  say("signal %d\n", number);
}

static void file_size(void) {
  static char block[1024];
  int file = memfd_create("grows", 0), written = 0;
  FILE* on_disk = tmpfile();
  if (on_disk) file = fileno(on_disk);
  limit(RLIMIT_FSIZE, 4096);
  handle(SIGXFSZ, exceeded, 0);
  for (int i = 0; i < 6; i++) {
    ssize_t result = write(file, block, sizeof block);
    if (result < 0)
      say("%s\n", strerror(errno));
    else
      written += (int)result;
  }
  say("%d written\n", written);
  pid_t child = fork();
  if (child == 0) exit(0);
  int status;
  waitpid(child, &status, 0);
  say("child %x\n", status);
}

static void memory_lock(int limited) {
  if (limited) limit(RLIMIT_MEMLOCK, PAGE_NBYTES);
  say("mlockall: %s\n", mlockall(MCL_CURRENT | MCL_FUTURE) ? strerror(errno) : "done");
  char* memory = malloc(1 << 20);
  say("malloc: %s\n", memory ? "done" : strerror(errno));
  pid_t child = fork();
  if (child == 0) _exit(4);
  int status;
  waitpid(child, &status, 0);
  say("child %x\n", status);
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void* waits(void* nothing) {
  pthread_mutex_lock(&held);
  pthread_mutex_unlock(&held);
  return nothing;
}

static void threads(int wanted) {
  pthread_t* all = calloc((size_t)wanted, sizeof *all);
  pthread_attr_t small;
  int made = 0, error = 0;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 32 << 10);
  pthread_mutex_lock(&held);
  while (made < wanted && (error = pthread_create(&all[made], &small, waits, NULL)) == 0) made++;
  say("%d threads, %s\n", made, strerror(error));
  pthread_mutex_unlock(&held);
  for (int i = 0; i < made; i++) pthread_join(all[i], NULL);
}

static void processes(void) {
  must(geteuid() != 0, "for users that the limit holds for");
  limit(RLIMIT_NPROC, 1);
  pid_t child = fork();
  if (child == 0) _exit(0);
  say("fork: %s\n", child < 0 ? strerror(errno) : "done");
  if (child > 0) waitpid(child, NULL, 0);
}

static void cpu(void) {
  handle(SIGXCPU, exceeded, SA_RESETHAND);
  struct rlimit both = {1, 2};
  must(setrlimit(RLIMIT_CPU, &both) == 0, "setrlimit");
  for (;;) continue;
}

static void stack(int again) {
  if (!again) {
    limit(RLIMIT_STACK, 256 << 10);
    execl("/proc/self/exe", "limits", "stack", "again", (char*)NULL);
  }
  pthread_t thread;
  say("thread %s\n", strerror(pthread_create(&thread, NULL, waits, NULL)));
  pthread_join(thread, NULL);
  die("stack");
}

static void mappings(void) {
  int made = 0;
  while (mmap(NULL, PAGE_NBYTES, made % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) made++;
  int error = errno;
  say("%s after about %d00\n", strerror(error), (made + 300) / 500 * 5);
}

int main(int count, char** words) {
  must(count > 1, "words");
  const char* mode = words[1];
  int number = count > 2 ? atoi(words[2]) : 0;
  if (is(mode, "descriptors")) descriptors(number);
  if (is(mode, "all-closed")) all_closed();
  if (is(mode, "file-size")) file_size();
  if (is(mode, "memory-lock")) memory_lock(0);
  if (is(mode, "lock-limited")) memory_lock(1);
  if (is(mode, "threads")) threads(number);
  if (is(mode, "processes")) processes();
  if (is(mode, "cpu")) cpu();
  if (is(mode, "stack")) stack(count > 2);
  if (is(mode, "mappings")) mappings();
  return 0;
}
