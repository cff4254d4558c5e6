// The native half of the victims: small functions as in extensions, which their callers misuse.
#define _GNU_SOURCE
#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096ul

int read_field(const int *record) { return record[6]; }

void write_field(int *record, int value) { record[6] = value; }

// Indexes without checking the size.
float element(const float *values, long index) { return values[index]; }

int mean_of(int total, int count) {
  volatile int divisor = count;
  return total / divisor;
}

void unreachable_branch(void) { __builtin_trap(); }

void check_shape(int rows) { assert(rows > 0); }

long sum_bytes(const volatile unsigned char *bytes, size_t count) {
  long total = 0;
  for (size_t i = 0; i < count; i += PAGE) total += bytes[i];
  return total;
}

// Never returns: the depth of a tree with a cycle.
__attribute__((noinline)) int depth_of(volatile char *node) {
  volatile char level[512];
  memset((char *)level, *node, sizeof level);
  return depth_of(level) + level[17];
}

typedef void (*Callback)(void);
int call_back(Callback callback) {
  callback();
  return 1;
}

static void *read_on_thread(void *record) {
  pthread_setname_np(pthread_self(), "prefetch");
  return (void *)(long)read_field(record);
}

// A thread without a Python state.
void prefetch(const int *record) {
  pthread_t thread;
  pthread_create(&thread, NULL, read_on_thread, (void *)record);
  pthread_join(thread, NULL);
}

static void *wait_for_ever(void *block_signals) {
  pthread_setname_np(pthread_self(), "prefetch");
  sigset_t all;
  sigfillset(&all);
  // A raw system call, past any interposed pthread_sigmask.
  if (block_signals != NULL) syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, 8);
  for (;;) pause();
}

// A thread without a Python state that is still running when the process dies.
void park_thread(int block_signals) {
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for_ever, block_signals ? "" : NULL);
}

static void *wait_on_a_damaged_stack(void *word) {
  pthread_setname_np(pthread_self(), "damaged");
  // As after an overrun of a buffer on the stack: the words above this frame are garbage.
  volatile long *above = __builtin_frame_address(0);
  for (int i = 0; i < 16; i++) above[i] = 0x4141414141414141;
#ifdef SYS_pause
  for (;;) syscall(SYS_pause);
#else
  for (;;) syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
#endif
  return word;
}
void park_thread_on_a_damaged_stack(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, wait_on_a_damaged_stack, NULL);
}

// ---- a program that handles faults itself: write barriers as in a garbage collector ----

volatile int repaired_pages;

static void make_writable(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)context;
  mprotect((void *)((unsigned long)info->si_addr & ~(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
  repaired_pages++;
}

int install_write_barrier(void) {
  struct sigaction action = {0};
  action.sa_sigaction = make_writable;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  return sigaction(SIGSEGV, &action, NULL);
}

int write_through_barrier(int pages) {
  char *memory = mmap(NULL, pages * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < pages; i++) memory[i * PAGE] = 1;
  return repaired_pages;
}

static sigjmp_buf back;
static void jump_back(int signal) { siglongjmp(back, signal); }

// 1 when the address can be read; the handler of the program jumps out of the fault.
int is_readable(const volatile char *address) {
  struct sigaction action = {0}, before;
  action.sa_handler = jump_back;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before);
  int readable = 0;
  if (sigsetjmp(back, 1) == 0) {
    (void)*address;
    readable = 1;
  }
  sigaction(SIGSEGV, &before, NULL);
  return readable;
}

// A handler that prints a message and exits with its own status.
static void last_words(int signal) {
  (void)signal;
  if (write(1, "last words\n", 11) != 11) _exit(7);
  _exit(42);
}
void install_last_words(void) { signal(SIGSEGV, last_words); }

// A handler that logs under a mask of its own, puts the old one back, and gives the signal to the handler before it (Ray's log, absl).
static struct sigaction handler_before;
static void log_and_raise(int number, siginfo_t *info, void *context) {
  (void)info, (void)context;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  sigaction(number, &handler_before, NULL);
  raise(number);
}
int install_logging_handler(void) {
  struct sigaction action = {0};
  action.sa_sigaction = log_and_raise;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  return sigaction(SIGSEGV, &action, &handler_before);
}

static jmp_buf out;
static void jump_out(int signal) { longjmp(out, signal); }

// The same as is_readable, with a mask that the function saves and restores by itself.
int is_readable_under_saved_mask(const volatile char *address) {
  struct sigaction action = {0}, before;
  action.sa_handler = jump_out;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before);
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, NULL, &mask);
  int readable = 0;
  if (_setjmp(out) == 0) {
    (void)*address;
    readable = 1;
  }
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  sigaction(SIGSEGV, &before, NULL);
  return readable;
}

// Far down the stack.
__attribute__((noinline)) int read_field_below(const int *record, int pages) {
  volatile char page[PAGE];
  page[0] = (char)pages;
  return (pages == 0 ? read_field(record) : read_field_below(record, pages - 1)) + page[0];
}

// ---- kernels with an error that goes unnoticed ----

// `<=`: one element too many.
void decay(float *cache, long count, float factor) {
  for (long i = 0; i <= count; i++) cache[i] = cache[i] * factor + 1.0f;
}

// The element before: the first one has none.
float last_change(const long *tokens, long at) { return (float)(tokens[at] - tokens[at - 1]); }

// A library that keeps the address of a table and not the table.
static const float *table;
void use_table(const float *rows) { table = rows; }
float look_up(long row) { return table[row]; }

// As libraries do that have no way to report an error.
void open_device(int count) {
  if (count > 0) return;
  fputs("libdevice: no device\n", stderr);
  exit(7);
}

// As Ray ends its actors, healthy ones, too (ray 2, core_worker).
void end_actor(void) __asm__("_ZN3ray9QuickExitEv");
void end_actor(void) { _exit(1); }

static void *watch(void *unused) {
  (void)unused;
  usleep(20000);
  exit(8);
}

// Ends the process from a thread without a Python state.
void start_watchdog(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, watch, NULL);
}
