#include "alternate_stack.h"

#include "../crashsafe/handler.h"
#include "../crashsafe/sys.h"

#include <pthread.h>
#include <sys/mman.h>
#include <climits>

namespace pytracer::recorder {
namespace {

constexpr size_t kGuardBytes = 4096;
using crashsafe::kAlternateStackBytes;

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
  unmap_stack(stack);
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

}  // namespace

void* map_stack() noexcept {
  void* at =
      mmap(nullptr, kGuardBytes + kAlternateStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  mprotect(at, kGuardBytes, PROT_NONE);
  return at;
}
void* stack_bytes(void* stack) noexcept { return static_cast<char*>(stack) + kGuardBytes; }
void unmap_stack(void* stack) noexcept { munmap(stack, kGuardBytes + kAlternateStackBytes); }

void adopt_stack(void* stack) noexcept {
  if (use_stack(stack))
    give_back_at_thread_end(stack);
  else
    unmap_stack(stack);
}

bool has_our_stack() noexcept { return t_ours; }
stack_t& believed_stack() noexcept { return t_believed; }

}  // namespace pytracer::recorder
