// Callable wherever munmap() is: before constructors, in an allocator that is starting, in a signal handler, between vfork and exec.
#include "core/interpose/unmappings.h"

#include "core/file/python_stacks.h"
#include "core/interpose/libc.h"
#include "core/interpose/preload.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/memory/unmappings.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/python/python_stack.h"
#include "crashsafe/unwind/images.h"
#include "crashsafe/unwind/own_stack.h"

#include <sys/mman.h>
#include <atomic>
#include <cerrno>

extern "C" {
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));
}

namespace pytracer::core {
namespace {

// A Python stack takes about as long as the call itself: as many as a program needs that closes files, and no more than 0.5 % of a processor.
constexpr uint64_t kBetweenStacksNs = 1'000'000, kStacksAtOnce = 500;
constexpr uint32_t kMostStacks = 500;  // different ones: half of what signals may use

using Munmap = int (*)(void*, size_t);
constinit Munmap real = nullptr;
std::atomic<uint64_t> stacks_until_ns{0};  // as if each had taken kBetweenStacksNs

int without_libc(void* at, size_t nbytes) {
#if defined(__x86_64__)
  long result = SYS_munmap;
  asm volatile("syscall" : "+a"(result) : "D"(at), "S"(nbytes) : "rcx", "r11", "memory");
#else
  register long number asm("x8") = SYS_munmap;
  register long result asm("x0") = reinterpret_cast<long>(at);
  register size_t second asm("x1") = nbytes;
  asm volatile("svc #0" : "+r"(result) : "r"(number), "r"(second) : "memory");
#endif
  if (result == 0) return 0;
  errno = static_cast<int>(-result);
  return -1;
}

int call(void* at, size_t nbytes) { return real != nullptr ? real(at, nbytes) : without_libc(at, nbytes); }

bool is_own(uint64_t caller) { return caller >= reinterpret_cast<uint64_t>(__ehdr_start) && caller < reinterpret_cast<uint64_t>(_end); }

// CPython's own memory: arenas of 1 MiB, and chunks of 16 KiB or a power of two more for frames (3.10 and later; Objects/obmalloc.c,
// Python/pystate.c). It comes and goes wherever objects and frames do, by the thousand, and would displace all others. Of a static CPython,
// whose module mmap lies in the same image, files of just such a size are not noted.
bool is_interpreters(uint64_t caller, size_t nbytes) {
  bool may_be = nbytes >= 16 << 10 && nbytes <= 1 << 20 && (nbytes & (nbytes - 1)) == 0;
  return may_be && crashsafe::python_offsets() != nullptr && crashsafe::in_same_image(caller, crashsafe::python_runtime());
}

bool is_stack_due() {
  uint64_t now = crashsafe::now_ns(), until = stacks_until_ns.load(std::memory_order_relaxed);
  uint64_t from = until + kStacksAtOnce * kBetweenStacksNs > now ? until : now - kStacksAtOnce * kBetweenStacksNs;
  return from <= now && stacks_until_ns.compare_exchange_strong(until, from + kBetweenStacksNs, std::memory_order_relaxed);
}

void take_stack(long, void* id, void*) { *static_cast<uint32_t*>(id) = python_stack_entry(kMostStacks); }

uint32_t stack_of_caller() {
  bool is_full = g_box.header->journal_used > g_box.journal.items / 2ull;  // the rest is for what matters more
  if (is_full || crashsafe::python_offsets() == nullptr || !is_stack_due() || crashsafe::sys_getpid() != g_box_pid) return 0;
  uint32_t id = 0;
  crashsafe::run_undisturbed(&id, take_stack);
  return id;
}

}  // namespace

void resolve_unmappings() noexcept { real = next_symbol<Munmap>("munmap"); }

}  // namespace pytracer::core

using namespace pytracer;

PYTRACER_EXPORT int munmap(void* at, size_t nbytes) noexcept {
  auto caller = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  if (!core::preloaded || !core::recording() || core::is_own(caller) || core::is_interpreters(caller, nbytes)) return core::call(at, nbytes);
  int before = errno;
  uint64_t number = crashsafe::note_unmapping(reinterpret_cast<uint64_t>(at), nbytes, caller, core::stack_of_caller());
  errno = before;
  int result = core::call(at, nbytes);
  if (result != 0) crashsafe::forget_unmapping(number);
  return result;
}
