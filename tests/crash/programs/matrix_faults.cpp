// The native half of the crash matrix: every kind of death, on threads that Python did not start, in awkward states.
// Right before it dies a thread announces its id and the address that it will access, for comparison with the report.
// With -DDIES_WHILE_LOADING this is a library whose constructor dies.
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <omp.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>

#define EXPORT extern "C" __attribute__((visibility("default"), noinline))

namespace {

constexpr size_t kPage = 4096;

struct Target {  // address of the next access; the memory there is unmapped right before
  volatile char* address;
  void* spacer;
  size_t spacer_nbytes;
} target;

// To a pipe that the test holds: pid, thread, address, time.
void note(const volatile void* address) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  char name[16] = "", line[160];
  prctl(PR_GET_NAME, name);
  int size = snprintf(line, sizeof line, "%d %ld %lx %lld %s\n", getpid(), syscall(SYS_gettid), reinterpret_cast<unsigned long>(address),
                      now.tv_sec * 1000000000LL + now.tv_nsec, name);
  const char* pipe = getenv("MATRIX_NOTE_FD");
  if (pipe == nullptr || write(atoi(pipe), line, static_cast<size_t>(size)) != size) _exit(99);
}

// ---- kinds ----

struct Record {
  int header[6];
  int field;
};

__attribute__((noinline)) int read_field(volatile Record* record) {
  note(&record->field);
  return record->field;
}

void read_null() {
  note(nullptr);
  *static_cast<volatile int*>(nullptr);
}
void read_near_null() { read_field(nullptr); }
void read_wild() { read_field(reinterpret_cast<Record*>(0x123456789000)); }
void read_non_canonical() { read_field(reinterpret_cast<Record*>(0x4141414141414141)); }

void read_target() {
  note(target.address);
  if (target.spacer != nullptr) munmap(target.spacer, target.spacer_nbytes);
  *target.address;
}

void write_read_only() {
  auto* page = static_cast<volatile char*>(mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  note(page + 64);
  page[64] = 1;
}

char not_code[64] = "these bytes are no instructions";

void jump_to_data() {
  note(not_code);
  reinterpret_cast<void (*)()>(not_code)();
}

void read_truncated_file() {
  std::string path = getenv("MATRIX_DIRECTORY");
  path += "/tokens.bin";
  int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, 4 * kPage) != 0) _exit(98);
  auto* tokens = static_cast<volatile char*>(mmap(nullptr, 4 * kPage, PROT_READ, MAP_SHARED, file, 0));
  if (ftruncate(file, kPage) != 0) _exit(98);
  note(tokens + kPage);
  for (size_t i = 0; i < 4; i++) tokens[i * kPage];
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) int depth_of(volatile char* node) {
  volatile char level[512];
  memset(const_cast<char*>(level), *node, sizeof level);
  return depth_of(level) + level[17];
}
void overflow_stack() {
  char node = 1;
  note(nullptr);
  depth_of(&node);
}

__attribute__((noinline)) void copy_name(char* into, size_t nbytes) { memset(into, 0x41, nbytes); }
__attribute__((noinline)) void smash_return_address() {
  char name[16];
  note(nullptr);
  copy_name(name, sizeof name + 64);
}

void run_breakpoint() {
  note(nullptr);
  __asm__ volatile("int3");
}

void run_undefined() {
  note(nullptr);
  __builtin_trap();
}

void call_abort() {
  note(nullptr);
  abort();
}

#pragma GCC diagnostic ignored "-Wterminate"
void leave_exception() noexcept {
  note(nullptr);
  throw std::runtime_error("sizes of buckets differ");
}

// Another process, created without the C library, sends to this thread and lives until we have ended.
void be_sent_a_signal() {
  note(nullptr);
  long thread = syscall(SYS_gettid);
  int us = getpid();
  if (syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) == 0) {
    syscall(SYS_tgkill, us, thread, SIGSEGV);
    timespec moment{0, 5000000};
    for (int i = 0; i < 1000 && syscall(SYS_getppid) == us; i++) syscall(SYS_nanosleep, &moment, nullptr);
    syscall(SYS_exit_group, 0);
  }
  for (;;) pause();
}

void free_twice() {
  note(nullptr);
  char* volatile block = static_cast<char*>(malloc(100));
  free(block);
  free(block);
}

struct Kind {
  const char* name;
  void (*die)();
};
constexpr Kind kKinds[] = {
    {"null", read_null},
    {"near-null", read_near_null},
    {"wild", read_wild},
    {"non-canonical", read_non_canonical},
    {"freed-storage", read_target},
    {"past-end", read_target},
    {"before-begin", read_target},
    {"read-only-write", write_read_only},
    {"jump-to-data", jump_to_data},
    {"truncated-file", read_truncated_file},
    {"stack-overflow", overflow_stack},
    {"smashed-return", smash_return_address},
    {"int3", run_breakpoint},
    {"ud2", run_undefined},
    {"abort", call_abort},
    {"terminate", leave_exception},
    {"sent-signal", be_sent_a_signal},
    {"heap-corruption", free_twice},
};

void die(const char* kind) {
  for (const Kind& known : kKinds)
    if (strcmp(known.name, kind) == 0) known.die();
  fprintf(stderr, "matrix: %s did not die\n", kind);
  _exit(97);
}

const char* later_kind;  // of a death that another thread or process causes
void die_later() { die(later_kind); }

#ifdef DIES_WHILE_LOADING
__attribute__((constructor)) void die_while_loading() { die(getenv("MATRIX_KIND")); }
#endif

}  // namespace

EXPORT void matrix_die(const char* kind) { die(kind); }

EXPORT void matrix_aim(void* address, void* spacer, size_t spacer_nbytes) { target = {static_cast<char*>(address), spacer, spacer_nbytes}; }

EXPORT void* matrix_map(size_t nbytes) {
  void* at = mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

EXPORT int matrix_is_mapped(void* page) { return msync(page, kPage, MS_ASYNC) == 0; }

// ---- places: threads that Python did not start exist before the storage is laid out, since a stack would fill its hole ----

static pthread_t raw_thread;
static sem_t raw_may_die;

static void* raw_main(void*) {
  pthread_setname_np(pthread_self(), "prefetch");
  while (sem_wait(&raw_may_die) != 0) {}
  die_later();
  return nullptr;
}

EXPORT void matrix_start_raw_thread() {
  sem_init(&raw_may_die, 0, 0);
  pthread_create(&raw_thread, nullptr, raw_main, nullptr);
}

EXPORT void matrix_die_on_raw_thread(const char* kind) {
  later_kind = kind;
  sem_post(&raw_may_die);
  pthread_join(raw_thread, nullptr);
}

static void on_openmp_worker(void (*run)()) {
#pragma omp parallel num_threads(2)
  if (omp_get_thread_num() == 1) run();
}

EXPORT void matrix_start_openmp() {
  on_openmp_worker([] {});
}

EXPORT void matrix_die_on_openmp_worker(const char* kind) {
  later_kind = kind;
  on_openmp_worker(die_later);
}

// ---- states ----

// Every signal is blocked while the handler runs.
EXPORT void matrix_die_in_signal_handler(const char* kind) {
  later_kind = kind;
  struct sigaction action{};
  action.sa_handler = [](int) { die_later(); };
  sigfillset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
  raise(SIGUSR1);
}

EXPORT void matrix_die_at_exit(const char* kind) {
  later_kind = strdup(kind);
  atexit(die_later);
}

// Below _int_malloc, the arena locked, since the process has two threads. A bin is damaged before: its last block links
// to nowhere ("wild"), or to something that is no block, which malloc notices ("heap-corruption").
#pragma GCC diagnostic ignored "-Wuse-after-free"
EXPORT void matrix_die_in_malloc(const char* kind) {
  pthread_create(&raw_thread, nullptr, raw_main, nullptr);
  static void* no_block[8];
  void* elsewhere = strcmp(kind, "wild") == 0 ? reinterpret_cast<void*>(0x123456789000) : static_cast<void*>(no_block);
  auto* block = static_cast<void* volatile*>(malloc(2000));
  void* volatile after = malloc(2000);
  note(strcmp(kind, "wild") == 0 ? static_cast<char*>(elsewhere) + 2 * sizeof(void*) : nullptr);
  free(const_cast<void**>(block));
  block[1] = elsewhere;
  void* volatile next = malloc(3000);
  free(next);
  free(after);
}

// As container runtimes do: ptrace() fails with EPERM here and in all children.
EXPORT int matrix_forbid_ptrace() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{sizeof program / sizeof *program, program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}
