// Processes that gave up most system calls: sandboxes of browsers, of sshd, file, man, and of untrusted loaders of models.
//
// sandboxed FILTER DEATH
// FILTER: few       what this program itself calls; the rest kills
//         strict    SECCOMP_MODE_STRICT: read, write, exit and sigreturn
//         fallocate only that one kills: the exit path of a program is its own
//         errno     the rest fails with EPERM
//         trap      the rest raises SIGSYS, which the program handles: it counts what was called that it had not called itself
// DEATH:  exit, _exit, null, abort, fork, thread, unflushed (exit with text in stdio's buffer), handled (a repaired fault)
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "common.h"

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static const char* death;
static char* page;
static volatile int foreign_calls;

static void install(const struct sock_filter* instructions, size_t nbytes) {
  struct sock_fprog program = {(unsigned short)(nbytes / sizeof *instructions), (struct sock_filter*)instructions};
  must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
  must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "seccomp");
}

static void allow_few(unsigned otherwise) {
  const struct sock_filter few[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(SYS_read),
      ALLOW(SYS_write),
      ALLOW(SYS_exit_group),
      ALLOW(SYS_exit),
      ALLOW(SYS_brk),
      ALLOW(SYS_mmap),
      ALLOW(SYS_munmap),
      ALLOW(SYS_mprotect),
      ALLOW(SYS_rt_sigreturn),
      ALLOW(SYS_futex),
      ALLOW(SYS_clone),
      ALLOW(SYS_clone3),
      ALLOW(SYS_wait4),
      ALLOW(SYS_set_robust_list),
      ALLOW(SYS_rseq),
      ALLOW(SYS_newfstatat),
      ALLOW(SYS_fstat),
      ALLOW(SYS_rt_sigprocmask),
      ALLOW(SYS_gettid),
      ALLOW(SYS_getpid),
      ALLOW(SYS_rt_sigaction),
      ALLOW(SYS_tgkill),
      ALLOW(SYS_madvise),
      ALLOW(SYS_getrandom),
      BPF_STMT(BPF_RET | BPF_K, otherwise),
  };
  install(few, sizeof few);
}

static void refuse_fallocate(void) {
  const struct sock_filter one[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  install(one, sizeof one);
}

static void count_call(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  foreign_calls++;
}

static void writable(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  mprotect(page_of(info->si_addr), PAGE_NBYTES, PROT_READ | PROT_WRITE);
}

static void* ends_at_once(void* nothing) { return nothing; }

static void forks(void) {
  pid_t child = fork();
  if (child == 0) {
    say("child\n");
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  say("status %x\n", status);
}

int main(int count, char** words) {
  must(count == 3, "words");
  const char* filter = words[1];
  death = words[2];
  page = page_without_access();
  pthread_t thread;
  if (is(death, "handled")) handle(SIGSEGV, writable, 0);
  if (is(death, "unflushed")) printf("not flushed before the exit\n");
  if (is(filter, "trap")) handle(SIGSYS, count_call, 0);
  say("begin\n");
  if (is(filter, "few")) allow_few(SECCOMP_RET_KILL_PROCESS);
  if (is(filter, "errno")) allow_few(SECCOMP_RET_ERRNO | EPERM);
  if (is(filter, "trap")) allow_few(SECCOMP_RET_TRAP);
  if (is(filter, "fallocate")) refuse_fallocate();
  if (is(filter, "strict")) must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "seccomp");
  say("sandboxed\n");
  if (is(death, "fork")) forks();
  if (is(death, "thread")) say("thread %d\n", pthread_create(&thread, NULL, ends_at_once, NULL) || pthread_join(thread, NULL));
  if (is(death, "handled")) *(volatile char*)page = 1;
  die(death);
  if (is(filter, "trap")) say("%d calls that were not mine\n", foreign_calls);
  if (is(death, "_exit")) _exit(3);
  if (is(filter, "strict")) syscall(SYS_exit, 3);  // exit_group is not among the four
  return 3;
}
