// A machine whose other processes take the processor away: each kEvery-th look at the clock comes 16 ms later than it would.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { kEvery = 50, kAwayNs = 16000000 };

static long looks, away_ns;

int clock_gettime(clockid_t id, struct timespec* to) {
  long result = syscall(SYS_clock_gettime, id, to);
  if (result != 0 || id != CLOCK_MONOTONIC) return (int)result;
  if (__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED) % kEvery == 0) __atomic_add_fetch(&away_ns, kAwayNs, __ATOMIC_RELAXED);
  long ns = to->tv_nsec + __atomic_load_n(&away_ns, __ATOMIC_RELAXED);
  to->tv_sec += ns / 1000000000;
  to->tv_nsec = ns % 1000000000;
  return 0;
}
