#include "alternate_stack.h"

#include "../crashsafe/handler.h"
#include "../crashsafe/sys.h"
#include "../crashsafe/thread_state.h"

#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <atomic>
#include <climits>
#include <cstring>

namespace pytracer::recorder {
namespace {

constexpr size_t kGuardBytes = 4096;
using crashsafe::kAlternateStackBytes;

// Stacks of ended threads. A place is emptied and filled by one exchange: no lock, so a fork finds nothing half done.
constexpr size_t kSpareStacks = 32;
constinit std::atomic<void*> spare[kSpareStacks] = {};

void* map_stack() {
  void* at =
      mmap(nullptr, kGuardBytes + kAlternateStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  mprotect(at, kGuardBytes, PROT_NONE);
  return at;
}

pthread_key_t stack_key;
pthread_once_t stack_key_once = PTHREAD_ONCE_INIT;
thread_local bool t_ours __attribute__((tls_model("initial-exec"))) = false;
thread_local int t_round __attribute__((tls_model("initial-exec"))) = 0;
thread_local stack_t t_believed __attribute__((tls_model("initial-exec"))) = {nullptr, SS_DISABLE, 0};

// Destructors run in rounds: go last, since another one may still fault.
void thread_ends(void* stack) {
  if (++t_round < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(stack_key, stack);
    return;
  }
  stack_t off{};
  off.ss_flags = SS_DISABLE;
  syscall(SYS_sigaltstack, &off, nullptr);
  t_ours = false;
  give_stack(stack);
}
void make_key() { pthread_key_create(&stack_key, thread_ends); }

bool use_stack(void* stack) {
  stack_t current{};
  syscall(SYS_sigaltstack, nullptr, &current);
  if (!(current.ss_flags & SS_DISABLE) && current.ss_size >= kAlternateStackBytes) return false;
  t_believed = current;
  stack_t ours{};
  ours.ss_sp = stack_bytes(stack);
  ours.ss_size = kAlternateStackBytes;
  t_ours = syscall(SYS_sigaltstack, &ours, nullptr) == 0;
  return t_ours;
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

void* stack_bytes(void* stack) noexcept { return static_cast<char*>(stack) + kGuardBytes; }

void give_stack(void* stack) noexcept {
  for (auto& place : spare) {
    void* empty = nullptr;
    if (place.load(std::memory_order_relaxed) == nullptr && place.compare_exchange_strong(empty, stack, std::memory_order_release)) return;
  }
  munmap(stack, kGuardBytes + kAlternateStackBytes);
}

void adopt_stack(void* stack) noexcept {
  note_stack_bounds();
  if (use_stack(stack))
    give_back_at_thread_end(stack);
  else
    give_stack(stack);
}

void arm_this_thread() noexcept {
  // In the last round of destructors nobody would give the stack back.
  if (t_ours || t_round >= PTHREAD_DESTRUCTOR_ITERATIONS) return;
  stack_t current{};
  syscall(SYS_sigaltstack, nullptr, &current);
  if (current.ss_flags & SS_ONSTACK) return;  // a handler of the program records: what follows would allocate in it
  if (void* stack = take_stack()) adopt_stack(stack);
}

bool has_our_stack() noexcept { return t_ours; }
stack_t& believed_stack() noexcept { return t_believed; }

}  // namespace pytracer::recorder
