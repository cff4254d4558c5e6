#include "core/interpose/sandbox.h"

#include "core/file/journal.h"
#include "core/file/run_directory.h"
#include "core/interpose/libc.h"
#include "core/interpose/masks.h"
#include "core/interpose/preload.h"
#include "core/interpose/sent_signals.h"
#include "core/interpose/signal_sends.h"
#include "core/process/alternate_stack.h"
#include "core/process/recorder.h"
#include "crashsafe/file/black_box.h"
#include "crashsafe/file/create_file.h"
#include "crashsafe/signals/install.h"
#include "guard/guard.h"

#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstring>

extern "C" {
__attribute__((visibility("hidden"))) long (*pytracer_real_syscall)(long, ...);
__attribute__((visibility("hidden"))) int (*pytracer_real_prctl)(int, ...);
__attribute__((visibility("hidden"))) void pytracer_find_system_calls();
__attribute__((visibility("hidden"))) long pytracer_confining_syscall(long number, unsigned long a, unsigned long b, unsigned long c, unsigned long d,
                                                                      unsigned long e, unsigned long f);
__attribute__((visibility("hidden"))) int pytracer_confining_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
}

namespace pytracer::core {

constinit std::atomic<bool> g_sandboxed{false};

namespace {

using namespace blackbox;

// Calls that may install a filter. Without one, or strict with flags, they ask whether the kernel knows flags and modes, as
// libseccomp, OpenSSH and Chromium do: the answer is an error.
bool installs(unsigned long operation, unsigned long flags, unsigned long filter) {
  return operation == SECCOMP_SET_MODE_FILTER ? filter != 0 : operation == SECCOMP_SET_MODE_STRICT && flags == 0 && filter == 0;
}
bool sets_mode(unsigned long mode, unsigned long filter) { return mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && filter != 0); }

void set_state(State state) { std::atomic_ref(g_box.header->state).store(static_cast<uint32_t>(state), std::memory_order_release); }

// While system calls are still allowed: the kernel gets what the program believes is installed. Other threads keep their alternate
// stacks, which are ours, and masks without the signals of faults: only they themselves can change those.
bool give_back(unsigned long mode) {
  if (!preloaded || !recording() || crashsafe::sys_getpid() != g_box_pid) return false;  // also a child between vfork and exec
  if (crashsafe::has_box()) note(CoreNote::kSandboxed, 0, mode);
  unwatch_sent_signals();
  crashsafe::uninstall_handlers();
  restore_handler_masks();
  restore_mask();
  disarm_this_thread();
  set_state(State::kDisabled);
  return true;
}

void restore() {
  arm_this_thread();
  crashsafe::install_handlers(PYTRACER_REAL(sigaction), announces() ? run_directory() : nullptr);
  watch_sent_signals();
  adopt_mask();
  set_state(State::kRecording);
}

// Stores only. The black box is unchanged and no longer used, also in a forked child, which shares it with this process.
void forget_all() {
  g_sandboxed.store(true, std::memory_order_relaxed);
  preloaded = false;
  guard::stop();
  abandon_recording();
}

// Around the one call that installs a filter; `mode` is SECCOMP_MODE_STRICT or SECCOMP_MODE_FILTER.
template <class Call>
long confine(unsigned long mode, Call call) {
  int before = errno;
  bool prepared = give_back(mode);
  errno = before;  // the program's, should the call succeed
  long result = call();
  if (!prepared) return result;
  int error = errno;
  if (result < 0)
    restore();
  else
    forget_all();
  errno = error;
  return result;
}

}  // namespace

void resolve_system_calls() noexcept { pytracer_find_system_calls(); }

bool starts_in_sandbox(const char* launchers, int own) noexcept {
  if (launchers == nullptr || *launchers == 0) return false;
  int had = 0;
  for (; *launchers >= '0' && *launchers <= '9'; launchers++) had = had * 10 + (*launchers - '0');
  return own < 0 || own > had;
}

}  // namespace pytracer::core

using namespace pytracer;

void pytracer_find_system_calls() {
  if (pytracer_real_syscall == nullptr) pytracer_real_syscall = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
  if (pytracer_real_prctl == nullptr) pytracer_real_prctl = reinterpret_cast<int (*)(int, ...)>(dlsym(RTLD_NEXT, "prctl"));
}

// Processes, not a sandbox: but the same function is interposed for it.
constexpr long kPidfdSendSignal = 424;  // on every processor

// syscall(SYS_seccomp, ...), as libseccomp does, since libc has no seccomp(), and syscall(SYS_prctl, PR_SET_SECCOMP, ...).
long pytracer_confining_syscall(long number, unsigned long a, unsigned long b, unsigned long c, unsigned long d, unsigned long e, unsigned long f) {
  auto call = [=] { return pytracer_real_syscall(number, a, b, c, d, e, f); };
  if (number == kPidfdSendSignal) {
    auto send = [](const void* made) { return (*static_cast<const decltype(call)*>(made))(); };
    return core::send_by_descriptor(static_cast<int>(a), static_cast<int>(b), static_cast<unsigned>(d), __builtin_return_address(0), send, &call);
  }
  if (number != SYS_seccomp) return core::sets_mode(b, c) ? core::confine(b, call) : call();
  if (!core::installs(a, b, c)) return call();
  return core::confine(a == SECCOMP_SET_MODE_STRICT ? SECCOMP_MODE_STRICT : SECCOMP_MODE_FILTER, call);
}

// prctl(PR_SET_SECCOMP, ...).
int pytracer_confining_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) {
  auto call = [=] { return static_cast<long>(pytracer_real_prctl(option, a, b, c, d)); };
  return static_cast<int>(core::sets_mode(a, b) ? core::confine(a, call) : call());
}

// Interposed: a few instructions for every other call, whose arguments stay in place.
#if defined(__x86_64__)
asm(R"(
  .macro forward_or_confine name, real, confining
  .text
  .globl \name
  .type \name, @function
\name:
  .cfi_startproc
  cmpq $0, \real(%rip)
  je 3f
1:
  .ifc \name, syscall
  cmpq $317, %rdi
  je \confining
  cmpq $424, %rdi
  je \confining
  cmpq $157, %rdi
  jne 2f
  cmpl $22, %esi
  je \confining
  .else
  cmpl $22, %edi
  je \confining
  .endif
2:
  jmp *\real(%rip)
3:
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  push %rdx
  .cfi_adjust_cfa_offset 8
  push %rcx
  .cfi_adjust_cfa_offset 8
  push %r8
  .cfi_adjust_cfa_offset 8
  push %r9
  .cfi_adjust_cfa_offset 8
  sub $8, %rsp
  .cfi_adjust_cfa_offset 8
  call pytracer_find_system_calls
  add $8, %rsp
  .cfi_adjust_cfa_offset -8
  pop %r9
  .cfi_adjust_cfa_offset -8
  pop %r8
  .cfi_adjust_cfa_offset -8
  pop %rcx
  .cfi_adjust_cfa_offset -8
  pop %rdx
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  jmp 1b
  .cfi_endproc
  .size \name, .-\name
  .endm
  forward_or_confine syscall, pytracer_real_syscall, pytracer_confining_syscall
  forward_or_confine prctl, pytracer_real_prctl, pytracer_confining_prctl
  .purgem forward_or_confine
)");
static_assert(SYS_seccomp == 317 && SYS_prctl == 157);
#else
asm(R"(
  .macro forward_or_confine name, real, confining
  .text
  .globl \name
  .type \name, %function
\name:
  .cfi_startproc
  adrp x16, \real
  ldr x16, [x16, :lo12:\real]
  cbz x16, 3f
1:
  .ifc \name, syscall
  cmp x0, #277
  b.eq \confining
  cmp x0, #424
  b.eq \confining
  cmp x0, #167
  b.ne 2f
  cmp w1, #22
  b.eq \confining
  .else
  cmp w0, #22
  b.eq \confining
  .endif
2:
  br x16
3:
  stp x29, x30, [sp, #-80]!
  .cfi_def_cfa_offset 80
  .cfi_offset 29, -80
  .cfi_offset 30, -72
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  str x6, [sp, #64]
  bl pytracer_find_system_calls
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldr x6, [sp, #64]
  ldp x29, x30, [sp], #80
  .cfi_restore 29
  .cfi_restore 30
  .cfi_def_cfa_offset 0
  adrp x16, \real
  ldr x16, [x16, :lo12:\real]
  b 1b
  .cfi_endproc
  .size \name, .-\name
  .endm
  forward_or_confine syscall, pytracer_real_syscall, pytracer_confining_syscall
  forward_or_confine prctl, pytracer_real_prctl, pytracer_confining_prctl
  .purgem forward_or_confine
)");
static_assert(SYS_seccomp == 277 && SYS_prctl == 167);
#endif
