// Test-only: ways to crash at exact places, also inside the handler, and on a painted alternate stack.
#include "crashsafe/python/python_stack.h"
#include "testing/testing.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <cstdlib>

using namespace pytracer::blackbox;
using namespace testing;

// ---- ways to crash ----

EXPORT __attribute__((noinline)) void testing_read(uint64_t addr) {
  (void)*reinterpret_cast<volatile char*>(addr);
  asm volatile("" ::: "memory");  // no tail call: this function stays on the stack
}
EXPORT __attribute__((noinline)) void testing_null() { testing_read(0); }
EXPORT void testing_abort() { abort(); }
EXPORT void testing_wild_jump() {
  void (*volatile wild)() = reinterpret_cast<void (*)()>(0x10);
  wild();
  asm volatile("" ::: "memory");
}

namespace {
volatile int depth = 0;
}
EXPORT __attribute__((noinline)) int testing_overflow() {
  volatile char room[512];
  room[0] = 1;
  depth = depth + 1;
  return depth < 0 ? 0 : testing_overflow() + room[0];
}

/// The return address and the frame pointer above are garbage.
EXPORT __attribute__((noinline)) void testing_smashed_stack() {
  memset(__builtin_frame_address(0), 0x41, 64);
  testing_read(0);
}

/// glibc finds its heap damaged while it holds the lock of the arena.
EXPORT void testing_in_malloc() {
  std::thread([] {  // a new arena, whose blocks come from its top
    auto* block = static_cast<char*>(malloc(2000));
    size_t top = ~static_cast<size_t>(0xfff) | 1;
    memcpy(block + malloc_usable_size(block), &top, sizeof top);
    void* volatile next = malloc(60000);
    free(next);
  })
      .join();
}

/// Threads that fault at the same moment.
EXPORT void testing_crash_together(uint32_t threads) {
  on_threads(threads, [](uint32_t) { testing_null(); });
}

EXPORT void testing_crash_on_thread() { std::thread(testing_null).join(); }
EXPORT void testing_overflow_on_thread() {
  std::thread([] { testing_overflow(); }).join();
}

/// A child between vfork and exec crashes; returns its wait status.
EXPORT int testing_crash_in_vfork_child() {
  int status = 0;
  pid_t child = vfork();
  if (child == 0) testing_read(0);
  waitpid(child, &status, 0);
  return status;
}

EXPORT void testing_crash_blocked() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  testing_null();
}

/// The calling thread's Python state points to garbage, then it crashes.
EXPORT void testing_crash_with_garbage_thread_state(uint64_t garbage) {
  auto* offsets = static_cast<const pytracer::crashsafe::PythonOffsets*>(pytracer_python_offsets());
  auto get = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  memcpy(get() + offsets->ts_frame, &garbage, sizeof garbage);
  testing_null();
}

// ---- faults inside the handler ----

/// Unmaps a region of the recording in this process (the file keeps it): the step that uses it faults.
EXPORT int testing_forbid(uint32_t kind) {
  char* base = pytracer_create_black_box() != 0 ? mapped_at(0) : nullptr;
  if (base == nullptr) return 0;
  int found = 0;
  auto* header = reinterpret_cast<FileHeader*>(base);
  auto* regions = reinterpret_cast<RegionEntry*>(base + sizeof(FileHeader));
  for (uint32_t i = 0; i < header->region_count; i++)
    if (regions[i].kind == kind && mprotect(mapped_at(regions[i].offset), regions[i].nbytes, PROT_NONE) == 0) found++;
  return found;
}

EXPORT void testing_probe_that_faults() {
  pytracer_set_node_probe([](pytracer_node*) {
    testing_read(8);
    return true;
  });
}
/// The reporting thread hangs in its second step for a while.
namespace {
std::atomic<uint32_t> probe_milliseconds{0};
}
EXPORT void testing_slow_probe(uint32_t milliseconds) {
  probe_milliseconds = milliseconds;
  pytracer_set_node_probe([](pytracer_node*) {
    timespec t{probe_milliseconds / 1000, static_cast<long>(probe_milliseconds % 1000) * 1'000'000};
    nanosleep(&t, nullptr);
    return false;
  });
}
EXPORT void testing_probe_with_garbage_name() {
  pytracer_set_node_probe([](pytracer_node* out) {
    *out = {reinterpret_cast<const char*>(0x4141414141414141), 7, false, nullptr};
    return true;
  });
}

// ---- the alternate stack ----

namespace {

constexpr unsigned char kPaint = 0xA5;

void allocate_in_handler(int, siginfo_t*, void*) {
  void* volatile block = malloc(100);
  free(block);
}

}  // namespace

/// Puts a painted file in the place of this thread's alternate stack: how deep the paint was scratched can be read when the
/// process is gone, its very last steps included. Preloaded cores only.
EXPORT int testing_paint(const char* path) {
  stack_t stack{};
  syscall(SYS_sigaltstack, nullptr, &stack);
  int fd = stack.ss_flags & SS_DISABLE ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(stack.ss_size)) != 0) return 0;
  void* at = mmap(stack.ss_sp, stack.ss_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) return 0;
  memset(at, kPaint, stack.ss_size);
  return 1;
}

/// Control for watch_allocations.c: a handler of a signal that we do not handle runs on our stack, where the program has none, and
/// allocates.
EXPORT void testing_allocate_in_handler() {
  chain(SIGUSR1, allocate_in_handler);
  raise(SIGUSR1);
}

/// Writes the time into the recording (a mark "fault <ns>") and faults.
EXPORT void testing_timed_null() {
  mark(0, 0);  // attach first: that is not the handler's time
  std::string text = "fault " + std::to_string(now_ns());
  pytracer_mark(text.data(), text.size());
  testing_read(0);
}
