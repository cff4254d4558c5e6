// Test-only: programs with handlers of their own: which repair their faults, leave by a jump, or change actions from many threads.
#include "testing/testing.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#include <atomic>
#include <csetjmp>

using namespace pytracer::blackbox;
using namespace testing;

// ---- programs that repair their faults ----

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
EXPORT void testing_default_action() { signal(SIGSEGV, SIG_DFL); }

// ---- what the program believes is installed ----

namespace {

// An action that is never called; all of it follows from its number.
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

/// Threads that change the action for SIGSEGV at once. Returns how many actions were not returned exactly once, or only in parts.
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
