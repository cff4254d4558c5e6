// Faults that a program repairs itself: everything that handlers can do untraced works under the tracer.
//
// barrier    a page is made writable again: garbage collectors, copy-on-write snapshots
// nodefer, fpe, trap    the handler itself faults, and that is repaired, too: crash reporters, emulators
// slow       a handler takes its time, while another thread's fault is repaired at once: user-level paging over a network
// bus        the mapped file is too short, and the handler makes it longer: databases
// skip       a privileged instruction is skipped: user-mode emulators; si_code is printed
// step       single-stepping through itself by the trap flag: tracers, instruction counters
// breakpoint int3 in its own code, skipped: probes, hot patching
// registers  the program continues with the handler's changes to the context, vector registers too
// vectors    what the program had in its vector registers survives a handler that uses them
// mask       the signal mask that the handler puts into the context holds after it
// alarm      timer signals arrive between the faults
#include <errno.h>
#include <pthread.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>

#include "common.h"

static const char* mode;
static char *outer, *inner;
static volatile int outer_count, inner_count, trap_count, alarm_count;

static void writable(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  outer_count++;
  mprotect(page_of(info->si_addr), PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void barrier(void) {
  handle(SIGSEGV, writable, 0);
  for (int i = 0; i < 1000; i++) {
    mprotect(outer, PAGE_NBYTES, PROT_NONE);
    *(volatile char*)outer = 1;
  }
  say("%d faults repaired\n", outer_count);
}

static void skip_division(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;
  inner_count++;
}

static void count_trap(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  inner_count++;
}

static void faults_again(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  outer_count++;
  char* page = page_of(info->si_addr);
  if (page == outer && is(mode, "nodefer")) *(volatile char*)inner = 1;
  if (page == outer && is(mode, "fpe")) die("divide");
  if (page == outer && is(mode, "trap")) die("int3");
  mprotect(page, PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void nested(void) {
  handle(SIGSEGV, faults_again, SA_NODEFER);
  handle(SIGFPE, skip_division, 0);
  handle(SIGTRAP, count_trap, 0);
  for (int i = 0; i < 100; i++) {
    mprotect(outer, PAGE_NBYTES, PROT_NONE);
    mprotect(inner, PAGE_NBYTES, PROT_NONE);
    *(volatile char*)outer = 1;
  }
  say("%d faults, %d inside handlers\n", outer_count, inner_count);
}

static volatile int slow_one_runs;

static void slow_for_outer(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  char* page = page_of(info->si_addr);
  if (page == outer) {
    slow_one_runs = 1;
    while (inner_count < 3) usleep(1000);  // until the other thread has been served
  }
  mprotect(page, PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void* touches_outer(void* nothing) {
  *(volatile char*)outer = 1;
  return nothing;
}

static void slow(void) {
  handle(SIGSEGV, slow_for_outer, 0);
  pthread_t thread;
  pthread_create(&thread, NULL, touches_outer, NULL);
  while (!slow_one_runs) usleep(1000);
  for (; inner_count < 3; inner_count++) {
    mprotect(inner, PAGE_NBYTES, PROT_NONE);
    *(volatile char*)inner = 1;
  }
  pthread_join(thread, NULL);
  say("the quick ones did not wait for the slow one\n");
}

static int file;

static void longer(int number, siginfo_t* info, void* context) {
  (void)context;
  outer_count++;
  say("signal %d code %d\n", number, info->si_code);
  must(ftruncate(file, 4 * PAGE_NBYTES) == 0, "ftruncate");
}

static void bus(void) {
  must((file = memfd_create("short", 0)) >= 0, "memfd_create");
  char* mapped = mmap(NULL, 4 * PAGE_NBYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  handle(SIGBUS, longer, 0);
  for (int i = 0; i < 3; i++) {
    must(ftruncate(file, 0) == 0, "ftruncate");
    *(volatile char*)(mapped + 3 * PAGE_NBYTES) = 1;
  }
  say("%d faults repaired\n", outer_count);
}

static void skip_one(int number, siginfo_t* info, void* context) {
  say("signal %d code %d address %p\n", number, info->si_code, info->si_addr);
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 1;
}

static void skip(void) {
  handle(SIGSEGV, skip_one, 0);
  for (int i = 0; i < 3; i++) __asm__ volatile("hlt");
}

static void step_on(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  trap_count++;
}

static void step(void) {
  handle(SIGTRAP, step_on, 0);
  __asm__ volatile(
      "lea -128(%%rsp), %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n"
      ".rept 100\n nop\n .endr\n"
      "pushfq\n andq $~0x100, (%%rsp)\n popfq\n lea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
  say("%d steps\n", trap_count);
}

static void breakpoint(void) {
  handle(SIGTRAP, count_trap, 0);
  for (int i = 0; i < 100; i++) __asm__ volatile("int3");
  say("%d breakpoints\n", inner_count);
}

static void gives_values(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ucontext_t* here = context;
  const float value = 42.5F;
  here->uc_mcontext.gregs[REG_RAX] = 4711;
  memcpy(&here->uc_mcontext.fpregs->_xmm[7], &value, sizeof value);
  here->uc_mcontext.gregs[REG_RIP] += 2;  // the size of ud2
}

static void registers(void) {
  handle(SIGILL, gives_values, 0);
  for (int i = 0; i < 3; i++) {
    long rax;
    float xmm7;
    __asm__ volatile("xor %%eax, %%eax; xorps %%xmm7, %%xmm7; ud2; movss %%xmm7, %1" : "=&a"(rax), "=m"(xmm7)::"xmm7");
    say("rax %ld xmm7 %.1f\n", rax, (double)xmm7);
  }
}

static void uses_vectors(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  __asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm15, %%xmm15" ::: "xmm0", "xmm15");
  if (__builtin_cpu_supports("avx")) __asm__ volatile("vzeroall");
  errno = EDOM;
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void vectors(void) {
  handle(SIGILL, uses_vectors, 0);
  double low = 1.25, high = 0;
  unsigned control = 0x7F80, control_after = 0;  // another rounding mode
  __asm__ volatile("ldmxcsr %0" ::"m"(control));
  __asm__ volatile("movsd %2, %%xmm15; ud2; movsd %%xmm15, %0; stmxcsr %1" : "=m"(high), "=m"(control_after) : "m"(low) : "xmm15");
  say("xmm15 %.2f, control %x\n", high, control_after & 0xFFC0);
}

static void blocks_more(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ucontext_t* here = context;
  sigaddset(&here->uc_sigmask, SIGUSR1);
  sigaddset(&here->uc_sigmask, SIGFPE);
  here->uc_mcontext.gregs[REG_RIP] += 2;
}

static void mask(void) {
  handle(SIGILL, blocks_more, 0);
  die("ud2");
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  say("SIGUSR1 %d SIGFPE %d SIGILL %d\n", sigismember(&now, SIGUSR1), sigismember(&now, SIGFPE), sigismember(&now, SIGILL));
}

static void count_alarm(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  alarm_count++;
}

static void alarms(void) {
  handle(SIGSEGV, writable, 0);
  handle(SIGALRM, count_alarm, SA_RESTART);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 500}, {0, 500}}, NULL);
  int faults = 0;
  while (alarm_count < 100) {
    mprotect(outer, PAGE_NBYTES, PROT_NONE);
    *(volatile char*)outer = 1;
    faults++;
  }
  say("%s\n", faults == outer_count ? "each fault once" : "faults lost");
}

static const struct {
  const char* name;
  void (*run)(void);
} modes[] = {
    {"barrier", barrier}, {"nodefer", nested},  {"fpe", nested},          {"trap", nested},           {"slow", slow},
    {"bus", bus},         {"skip", skip},       {"step", step},           {"breakpoint", breakpoint}, {"mask", mask},
    {"alarm", alarms},    {"vectors", vectors}, {"registers", registers},
};

int main(int count, char** words) {
  mode = count > 1 ? words[1] : "";
  outer = page_without_access();
  inner = page_without_access();
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (is(modes[i].name, mode)) return modes[i].run(), 0;
  return UNAVAILABLE;
}
