// Page faults served by a thread of the program: live migration, snapshots, far memory.
// userfault missing|shared|signal: private memory; shared memory; the faulting thread gets SIGBUS instead, and its handler serves it.
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>

#include "common.h"

enum { kPages = 64 };
static int faults;
static char* area;
static char filler[PAGE_NBYTES] __attribute__((aligned(4096)));
static volatile int served;

static void serve(char* page) {
  memset(filler, 1 + served++ % 100, sizeof filler);
  struct uffdio_copy copy = {.dst = (unsigned long)page, .src = (unsigned long)filler, .len = PAGE_NBYTES};
  must(ioctl(faults, UFFDIO_COPY, &copy) == 0, "UFFDIO_COPY");
}

static void* serves(void* nothing) {
  struct uffd_msg message;
  while (read(faults, &message, sizeof message) == sizeof message)
    if (message.event == UFFD_EVENT_PAGEFAULT) serve(page_of((void*)message.arg.pagefault.address));
  return nothing;
}

static void by_signal(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  serve(page_of(info->si_addr));
}

int main(int count, char** words) {
  must(count == 2, "words");
  int with_signal = is(words[1], "signal");
  faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  must(faults >= 0, "userfaultfd");
  struct uffdio_api api = {.api = UFFD_API, .features = with_signal ? UFFD_FEATURE_SIGBUS : 0};
  must(ioctl(faults, UFFDIO_API, &api) == 0, "UFFDIO_API");
  int sharing = is(words[1], "shared") ? MAP_SHARED : MAP_PRIVATE;
  area = mmap(NULL, kPages * PAGE_NBYTES, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register all = {{(unsigned long)area, kPages * PAGE_NBYTES}, UFFDIO_REGISTER_MODE_MISSING, 0};
  must(ioctl(faults, UFFDIO_REGISTER, &all) == 0, "UFFDIO_REGISTER");
  pthread_t thread;
  if (with_signal)
    handle(SIGBUS, by_signal, 0);
  else
    pthread_create(&thread, NULL, serves, NULL);
  int sum = 0;
  for (int i = 0; i < kPages; i++) sum += area[i * PAGE_NBYTES];
  say("%d pages served, sum %d\n", served, sum);
  return 0;
}
