#include "core/process/alternate_stack.h"

#include "core/interpose/sandbox.h"
#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/unwind/own_stack.h"
#include "crashsafe/unwind/stack_bounds.h"

#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <atomic>
#include <climits>
#include <cstring>

namespace pytracer::core {
namespace {

constexpr int kAutoDisarm = static_cast<int>(1u << 31);  // SS_AUTODISARM
using crashsafe::kOwnStackBytes;

// Stacks of ended threads. An entry is emptied and filled by one exchange: no lock, so a fork finds nothing half done.
constexpr size_t kSpareStacks = 32;
constinit std::atomic<void*> spare[kSpareStacks] = {};

// A guard page is a mapping of its own and makes two of its stack's neighbours: without one, the kernel merges them, and a process has
// room for as many threads as untraced (vm.max_map_count). Not MADV_GUARD_INSTALL: /proc/self/maps would call the page writable, and
// redis tests all memory that is.
constexpr int kGuardedStacks = 64;
std::atomic<int> mapped{0};

// One page: mprotect() protects whole ones.
size_t guard_bytes() {
  if constexpr (crashsafe::kLargestPage == 4096) return 4096;
  return static_cast<size_t>(getauxval(AT_PAGESZ));
}

void* map_stack() {
  void* at = mmap(nullptr, guard_bytes() + kOwnStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (mapped.fetch_add(1, std::memory_order_relaxed) < kGuardedStacks) mprotect(at, guard_bytes(), PROT_NONE);
  return at;
}

pthread_key_t stack_key;
pthread_once_t stack_key_once = PTHREAD_ONCE_INIT;
thread_local int t_round __attribute__((tls_model("initial-exec"))) = 0;

// Destructors run in rounds: run in the last one, since another destructor may still fault.
void thread_ends(void* stack) {
  if (sandboxed()) return;
  if (++t_round < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(stack_key, stack);
    return;
  }
  stack_t off{}, current{};
  off.ss_flags = SS_DISABLE;
  syscall(SYS_sigaltstack, nullptr, &current);
  if (crashsafe::is_own_stack(current)) syscall(SYS_sigaltstack, &off, nullptr);
  crashsafe::pytracer_own_stack = 0;
  give_stack(stack);
}
void make_key() { pthread_key_create(&stack_key, thread_ends); }

void use_stack(void* stack) {
  crashsafe::pytracer_own_stack = reinterpret_cast<uint64_t>(stack_bytes(stack)) + kOwnStackBytes;
  stack_t current{}, ours = crashsafe::own_stack();
  syscall(SYS_sigaltstack, nullptr, &current);
  if (current.ss_flags & SS_DISABLE) syscall(SYS_sigaltstack, &ours, nullptr);
}

void give_back_at_thread_end(void* stack) {
  pthread_once(&stack_key_once, make_key);
  pthread_setspecific(stack_key, stack);
}

// The kernel copies the program's name to the very end of the first stack, below one empty word. libc's own answer lies below
// that, and misses the arguments. 0 where that is not so.
uint64_t end_of_first_stack() {
  auto* name = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  if (name == nullptr) return 0;
  uint64_t end = reinterpret_cast<uint64_t>(name) + strlen(name) + 1 + sizeof(void*);
  return end % 4096 == 0 ? end : 0;
}

void note_stack_bounds() {
  if (crashsafe::t_stack_bounds.high != 0) return;
  if (crashsafe::sys_gettid() == crashsafe::sys_getpid()) {
    crashsafe::t_stack_bounds = {0, end_of_first_stack()};
    return;
  }
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* low = nullptr;
  size_t nbytes = 0;
  if (pthread_attr_getstack(&attributes, &low, &nbytes) == 0)
    crashsafe::t_stack_bounds = {reinterpret_cast<uint64_t>(low), reinterpret_cast<uint64_t>(low) + nbytes};
  pthread_attr_destroy(&attributes);
}

}  // namespace

void* take_stack() noexcept {
  for (auto& place : spare)
    if (place.load(std::memory_order_relaxed) != nullptr)
      if (void* stack = place.exchange(nullptr, std::memory_order_acquire)) return stack;
  return map_stack();
}

void* stack_bytes(void* stack) noexcept { return static_cast<char*>(stack) + guard_bytes(); }

void give_stack(void* stack) noexcept {
  for (auto& place : spare) {
    void* empty = nullptr;
    if (place.load(std::memory_order_relaxed) == nullptr && place.compare_exchange_strong(empty, stack, std::memory_order_release)) return;
  }
  munmap(stack, guard_bytes() + kOwnStackBytes);
}

void adopt_stack(void* stack) noexcept {
  note_stack_bounds();
  if (crashsafe::pytracer_own_stack != 0) return give_stack(stack);
  use_stack(stack);
  give_back_at_thread_end(stack);
}

void arm_this_thread() noexcept {
  // In the last round of destructors the stack would not be released.
  if (crashsafe::pytracer_own_stack != 0 || t_round >= PTHREAD_DESTRUCTOR_ITERATIONS) return;
  stack_t current{};
  syscall(SYS_sigaltstack, nullptr, &current);
  if (current.ss_flags & SS_ONSTACK) return;  // the program records in a handler: what follows would allocate there
  if (void* stack = take_stack()) adopt_stack(stack);
}

int set_alternate_stack(const stack_t* stack, stack_t* old) noexcept {
  stack_t before{}, ours = crashsafe::own_stack();
  // The program disables its own, or has none: the kernel gets ours.
  const stack_t* wanted = stack != nullptr && (stack->ss_flags & ~kAutoDisarm) == SS_DISABLE && crashsafe::pytracer_own_stack != 0 ? &ours : stack;
  if (syscall(SYS_sigaltstack, wanted, &before) != 0) return -1;
  if (old != nullptr) *old = crashsafe::is_own_stack(before) ? stack_t{nullptr, SS_DISABLE, 0} : before;
  return 0;
}

void disarm_this_thread() noexcept {
  if (crashsafe::pytracer_own_stack == 0) return;
  stack_t current{}, off{};
  off.ss_flags = SS_DISABLE;
  syscall(SYS_sigaltstack, nullptr, &current);
  if (crashsafe::is_own_stack(current) && ((current.ss_flags & SS_ONSTACK) != 0 || syscall(SYS_sigaltstack, &off, nullptr) != 0)) return;
  crashsafe::pytracer_own_stack = 0;
  give_stack(pthread_getspecific(stack_key));
  pthread_setspecific(stack_key, nullptr);
}

}  // namespace pytracer::core
