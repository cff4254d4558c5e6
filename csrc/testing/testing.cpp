// Test-only: work for the core at speed, and ways to crash at exact places. Built by tests/native, never packaged.
//
// Storages here are numbers, not memory. Everything about a life follows from its base address and size (see `mix`), so that
// a reader can tell when parts of two lives were mixed.
#include "blackbox/layout.h"
#include "core/core.h"
#include "crashsafe/python/python_stack.h"
#include "crashsafe/signals/decision.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <barrier>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace pytracer::blackbox;

namespace {

// ---- lives ----

uint32_t mix(uint64_t base, uint64_t nbytes) { return static_cast<uint32_t>((base >> 6) * 2654435761ull ^ nbytes * 40503ull) & 0x7fffffff; }

uint32_t node = 0;  // journal id that all lives refer to

uint64_t base_of(uint32_t thread, uint64_t slot, bool large) { return (0x100ull + thread) << 32 | (large ? 1ull << 31 : 0) | slot << 6; }
// Small sizes say the thread and the life modulo 8000, large ones the whole life.
uint64_t size_of(uint32_t thread, uint64_t life, bool large) {
  return large ? 1ull << 40 | life << 4 | thread % 16 : 1 + life % 8000 * 16 + thread % 16;
}

void allocate(uint64_t base, uint64_t nbytes) { pytracer_storage_allocated(reinterpret_cast<void*>(base), nbytes, 0, {node, mix(base, nbytes)}); }
void release(uint64_t base, uint64_t nbytes) { pytracer_storage_freed(reinterpret_cast<void*>(base), {node, mix(base, nbytes + 1)}, nullptr); }

template <class Work>
void on_threads(uint32_t count, Work work) {
  std::barrier start(count);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < count; t++)
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      work(t);
    });
  for (auto& thread : threads) thread.join();
}

void mark(uint32_t thread, uint64_t n) {
  std::string text = std::to_string(thread) + " " + std::to_string(n);
  pytracer_mark(text.data(), text.size());
}

std::vector<std::thread> background;
std::atomic<bool> stopping{false};

uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}

// Where the byte at an offset of the box's file is mapped; null: nowhere.
char* place_of(uint64_t wanted) {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[8192];
  char* found = nullptr;
  while (maps != nullptr && found == nullptr && fgets(line, sizeof line, maps) != nullptr) {
    unsigned long start, end, offset;
    bool ours = sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && strstr(line, pytracer_box_path()) != nullptr;
    if (ours && offset <= wanted && wanted - offset < end - start) found = reinterpret_cast<char*>(start + (wanted - offset));
  }
  if (maps != nullptr) fclose(maps);
  return found;
}

}  // namespace

/// Call once after recording has started: names the node that all lives refer to.
EXPORT void testing_begin() {
  static const char name[] = "testing::Node";
  node = pytracer_journal(static_cast<uint32_t>(EntryKind::kNode), name, sizeof name);
  pytracer_open_storages();
}

/// Each thread allocates `count` storages that stay.
EXPORT void testing_hold(uint32_t threads, uint32_t first_thread, uint64_t count, int large) {
  on_threads(threads, [=](uint32_t t) {
    for (uint64_t i = 0; i < count; i++) allocate(base_of(first_thread + t, i, large), size_of(first_thread + t, i, large));
  });
}

/// Each thread frees what testing_hold of the same arguments allocated.
EXPORT void testing_let_go(uint32_t threads, uint32_t first_thread, uint64_t count, int large) {
  on_threads(threads, [=](uint32_t t) {
    for (uint64_t i = 0; i < count; i++) release(base_of(first_thread + t, i, large), size_of(first_thread + t, i, large));
  });
}

/// Each thread allocates and frees `lives` storages in turn, at `slots` addresses of its own; all lives end.
EXPORT void testing_churn(uint32_t threads, uint64_t lives, uint32_t slots, int large) {
  on_threads(threads, [=](uint32_t t) {
    for (uint64_t n = 0; n < lives; n++) {
      uint64_t base = base_of(t, n % slots, large), nbytes = size_of(t, n, large);
      allocate(base, nbytes);
      release(base, nbytes);
    }
  });
}

/// One thread allocates, another one frees.
EXPORT void testing_hand_over(uint64_t lives) {
  std::atomic<uint64_t> made{0}, ended{0};
  on_threads(2, [&](uint32_t t) {
    for (uint64_t n = 0; n < lives; n++) {
      uint64_t base = base_of(0, n % 64, true), nbytes = size_of(0, n, true);
      if (t == 0) {
        while (n - ended.load(std::memory_order_acquire) >= 64) std::this_thread::yield();
        allocate(base, nbytes);
        made.store(n + 1, std::memory_order_release);
      } else {
        while (made.load(std::memory_order_acquire) <= n) std::this_thread::yield();
        release(base, nbytes);
        ended.store(n + 1, std::memory_order_release);
      }
    }
  });
}

EXPORT void testing_allocate(uint64_t base, uint64_t nbytes) { allocate(base, nbytes); }
EXPORT void testing_release(uint64_t base, uint64_t nbytes) { release(base, nbytes); }

/// Each thread writes `count` marks "thread n"; all threads live until the last one has begun.
EXPORT void testing_marks(uint32_t threads, uint64_t count) {
  std::barrier end(threads);
  on_threads(threads, [&](uint32_t t) {
    for (uint64_t n = 0; n < count; n++) mark(t, n);
    end.arrive_and_wait();
  });
}

/// Threads of a pool that all begin at once while the table of storages grows: each holds storages, each writes a mark.
EXPORT void testing_burst(uint32_t threads, uint64_t storages) {
  std::barrier end(threads);
  on_threads(threads, [&](uint32_t t) {
    for (uint64_t i = 0; i < storages; i++) allocate(base_of(t, i, false), size_of(t, i, false));
    mark(t, 0);
    end.arrive_and_wait();
  });
}

/// Threads one after the other; each writes one mark.
EXPORT void testing_threads_in_turn(uint32_t count) {
  for (uint32_t t = 0; t < count; t++) std::thread([=] { mark(t, 0); }).join();
}

/// Each thread appends `count` notes "thread n ..." of `nbytes`; `ids` holds threads * count results.
EXPORT void testing_journal(uint32_t threads, uint32_t count, uint32_t nbytes, uint32_t* ids) {
  on_threads(threads, [=](uint32_t t) {
    std::string text;
    for (uint32_t n = 0; n < count; n++) {
      text = std::to_string(t) + " " + std::to_string(n) + " ";
      text.resize(nbytes, static_cast<char>('a' + t));
      ids[t * count + n] = pytracer_journal(static_cast<uint32_t>(EntryKind::kNote), text.data(), text.size());
    }
  });
}

/// Threads that record storages, marks and now and then a note, until testing_stop or the end.
EXPORT void testing_background(uint32_t threads, uint32_t slots) {
  for (uint32_t t = 0; t < threads; t++)
    background.emplace_back([=] {
      for (uint64_t n = 0; !stopping.load(std::memory_order_relaxed); n++) {
        bool large = n / slots % 2 != 0;  // half of the addresses live, half are free, at any time
        uint64_t slot = n % slots;
        if (n >= slots) {
          bool old_large = (n - slots) / slots % 2 != 0;
          release(base_of(t, slot, old_large), size_of(t, n - slots, old_large));
        }
        allocate(base_of(t, slot, large), size_of(t, n, large));
        if (n % 4 == 0) mark(t, n);
        if (n % 4096 == 0) {
          std::string text = std::to_string(t) + " " + std::to_string(n) + " ";
          text.resize(24 + n / 4096 % 40, 'x');
          pytracer_journal(static_cast<uint32_t>(EntryKind::kNote), text.data(), text.size());
        }
      }
    });
}
EXPORT void testing_stop() {
  stopping = true;
  for (auto& thread : background) thread.join();
  background.clear();
}

/// In a forked child, where the background threads do not exist.
EXPORT void testing_forget_background() {
  for (auto& thread : background) thread.detach();
  background.clear();
}

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

/// Takes a region of the box away from this process (not from the file): the step that uses it faults.
EXPORT int testing_forbid(uint32_t kind) {
  char* base = pytracer_make_box() != 0 ? place_of(0) : nullptr;
  if (base == nullptr) return 0;
  int found = 0;
  auto* header = reinterpret_cast<FileHeader*>(base);
  auto* regions = reinterpret_cast<RegionEntry*>(base + sizeof(FileHeader));
  for (uint32_t i = 0; i < header->region_count; i++)
    if (regions[i].kind == kind && mprotect(place_of(regions[i].offset), regions[i].nbytes, PROT_NONE) == 0) found++;
  return found;
}

EXPORT void testing_probe_that_faults() {
  pytracer_set_node_probe([](pytracer_node*) {
    testing_read(8);
    return true;
  });
}
/// The reporting thread stays in its second step for a while.
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

void chain(int signal, void (*function)(int, siginfo_t*, void*)) {
  struct sigaction action{};
  action.sa_sigaction = function;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(signal, &action, nullptr);
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

/// Control for watch_allocations.c: a handler of a signal that we leave alone runs on our stack, where the program has none, and
/// allocates.
EXPORT void testing_allocate_in_handler() {
  chain(SIGUSR1, allocate_in_handler);
  raise(SIGUSR1);
}

/// Writes the time into the box (a mark "fault <ns>") and faults.
EXPORT void testing_timed_null() {
  mark(0, 0);  // attach first: that is not the handler's time
  std::string text = "fault " + std::to_string(now_ns());
  pytracer_mark(text.data(), text.size());
  testing_read(0);
}

// ---- programs that live with their faults ----

namespace {

long page_bytes() { return sysconf(_SC_PAGESIZE); }

void open_page(int, siginfo_t* info, void*) {
  auto at = reinterpret_cast<uintptr_t>(info->si_addr) & ~static_cast<uintptr_t>(page_bytes() - 1);
  mprotect(reinterpret_cast<void*>(at), static_cast<size_t>(page_bytes()), PROT_READ | PROT_WRITE);
}

thread_local sigjmp_buf escape;
void jump_out(int, siginfo_t*, void*) { siglongjmp(escape, 1); }

}  // namespace

/// Threads that each write to `pages` protected pages of their own; the handler of the program opens them, as a write barrier does.
EXPORT void testing_repair_together(uint32_t threads, uint32_t pages) {
  chain(SIGSEGV, open_page);
  on_threads(threads, [=](uint32_t) {
    auto nbytes = static_cast<size_t>(page_bytes()) * pages;
    auto* at = static_cast<volatile char*>(mmap(nullptr, nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (uint32_t i = 0; i < pages; i++) at[i * page_bytes()] = 1;
    munmap(const_cast<char*>(at), nbytes);
  });
}

/// The handler of the program leaves by siglongjmp, as a probe of the processor does; the thread lives on.
EXPORT void testing_jump_out() {
  chain(SIGSEGV, jump_out);
  if (sigsetjmp(escape, 1) == 0) testing_read(0);
}
/// The handler of a fault waits for a thread, and that thread crashes for good.
EXPORT void testing_crash_beside_handler() {
  chain(SIGSEGV, [](int, siginfo_t*, void*) {
    std::thread([] {
      signal(SIGSEGV, SIG_DFL);
      testing_read(0);
    }).join();
  });
  testing_read(0);
}
/// What becomes of a signal: crashsafe/signals/decision.h.
EXPORT int testing_decide(int installed, int fault, int blocked, int is_init) {
  using namespace pytracer::crashsafe;
  return static_cast<int>(decide({static_cast<Installed>(installed), fault != 0, blocked != 0, is_init != 0}));
}
EXPORT void testing_default_action() { signal(SIGSEGV, SIG_DFL); }

// ---- what the program believes is installed ----

namespace {

// An action that nobody calls; all of it follows from its number.
struct sigaction numbered_action(uint64_t number) {
  struct sigaction action{};
  action.sa_sigaction = reinterpret_cast<void (*)(int, siginfo_t*, void*)>(number << 12);
  action.sa_flags = SA_SIGINFO | (number % 2 != 0 ? SA_RESTART : 0) | (number % 3 != 0 ? SA_NODEFER : 0);
  for (size_t at = 0; at + sizeof number <= sizeof action.sa_mask; at += sizeof number)
    memcpy(reinterpret_cast<char*>(&action.sa_mask) + at, &number, sizeof number);
  return action;
}

// 0: parts of several.
uint64_t number_of(const struct sigaction& action) {
  uint64_t number = reinterpret_cast<uint64_t>(action.sa_sigaction) >> 12;
  struct sigaction whole = numbered_action(number);
  constexpr int kFlags = SA_SIGINFO | SA_RESTART | SA_NODEFER;
  return memcmp(&whole.sa_mask, &action.sa_mask, sizeof whole.sa_mask) == 0 && whole.sa_flags == (action.sa_flags & kFlags) ? number : 0;
}

}  // namespace

/// Threads that change the action for SIGSEGV at once. Returns how many changes were given back not exactly once, or in parts.
EXPORT uint64_t testing_change_actions(uint32_t threads, uint64_t changes) {
  std::vector<std::atomic<uint32_t>> given_back(threads * changes + 1);  // by number, from 1
  std::atomic<uint64_t> parts{0};
  struct sigaction first = numbered_action(threads * changes + 1), last{};
  sigaction(SIGSEGV, &first, nullptr);
  on_threads(threads, [&](uint32_t t) {
    for (uint64_t n = 0; n < changes; n++) {
      struct sigaction mine = numbered_action(t * changes + n + 1), old{}, seen{};
      sigaction(SIGSEGV, &mine, &old);
      sigaction(SIGSEGV, nullptr, &seen);
      uint64_t number = number_of(old);
      parts += number == 0 || number_of(seen) == 0;
      given_back[number % given_back.size()]++;
    }
  });
  sigaction(SIGSEGV, nullptr, &last);
  given_back[number_of(last) % given_back.size()]++;
  uint64_t wrong = parts;
  for (auto& count : given_back) wrong += count != 1;
  return wrong;
}

// ---- items that are taken again while another thread is about to change them ----

namespace {

template <class Item>
Item* region(RegionKind kind) {
  char* base = pytracer_make_box() != 0 ? place_of(0) : nullptr;
  auto* header = reinterpret_cast<FileHeader*>(base);
  auto* regions = reinterpret_cast<RegionEntry*>(base + sizeof(FileHeader));
  for (uint32_t i = 0; base != nullptr && i < header->region_count; i++)
    if (regions[i].kind == static_cast<uint32_t>(kind)) return reinterpret_cast<Item*>(place_of(regions[i].offset));
  return nullptr;
}

// In every second lap of the ring, collectives end; in the others, none does.
bool ends(uint64_t number) { return (number - 1) / kCollectives % 2 == 0; }

pytracer_who nobody() { return {0, 0}; }

}  // namespace

/// One thread calls collectives; others end those that the ring is about to take again. Returns how many ended that nobody ended.
EXPORT uint64_t testing_overtake_collectives(uint32_t threads, uint64_t calls) {
  pytracer_open_collectives();
  auto* slots = region<CollectiveSlot>(RegionKind::kCollectives);
  std::atomic<uint64_t> newest{0}, wrong{0};
  std::atomic<bool> done{false};
  on_threads(threads + 1, [&](uint32_t t) {
    if (t != 0) {
      while (!done) {
        uint64_t last = newest, oldest = last > kCollectives ? last - kCollectives + 1 : 1;
        if (ends(oldest)) pytracer_collective_reached(oldest, static_cast<uint32_t>(CollectiveState::kCompleted));
      }
      return;
    }
    CollectiveSlot slot{};
    for (uint64_t n = 1; n <= calls; n++) {
      CollectiveSlot& before = slots[(n - 1) % kCollectives];
      if (n > kCollectives && !ends(n - kCollectives) && std::atomic_ref(before.state) != static_cast<uint32_t>(CollectiveState::kScheduled)) wrong++;
      newest = pytracer_collective_scheduled(&slot);
    }
    done = true;
  });
  return wrong;
}

/// One thread records storages in foreign memory and their ends; others free numbers that are no longer valid. All but one slot are
/// taken, so that the next storage gets the same one. Returns how many storages were gone before their end.
EXPORT uint64_t testing_free_twice(uint32_t threads, uint64_t lives) {
  pytracer_foreign birth{};
  for (uint64_t i = 1; i < kForeignStorages; i++) {
    birth.addr = birth.identity = i << 20;
    birth.nbytes = 4096;
    pytracer_foreign_allocated(&birth);
  }
  std::atomic<uint64_t> freed{0}, wrong{0};
  std::atomic<bool> done{false};
  on_threads(threads + 1, [&](uint32_t t) {
    while (t != 0 && !done) pytracer_foreign_freed(freed, nobody);
    if (t != 0) return;
    pytracer_foreign life{};
    for (uint64_t n = 0; n < lives; n++) {
      life.addr = life.identity = (kForeignStorages + n) << 20;
      life.nbytes = 4096;
      uint64_t number = pytracer_foreign_allocated(&life);
      freed = number;  // too early, for the others
      while (pytracer_foreign_of(life.identity) == number) std::this_thread::yield();
      number = pytracer_foreign_allocated(&life);
      for (int looks = 0; looks < 20; looks++)
        if (pytracer_foreign_of(life.identity) != number) {
          wrong++;
          break;
        }
      pytracer_foreign_freed(number, nobody);
    }
    done = true;
  });
  return wrong;
}
