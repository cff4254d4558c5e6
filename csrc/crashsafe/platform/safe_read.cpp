#include "crashsafe/platform/safe_read.h"

#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/process_status.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/unwind/own_stack.h"

#include <sys/uio.h>
#include <cerrno>

extern "C" {
__attribute__((visibility("hidden"))) long pytracer_copy_bytes(void* to, const void* from, size_t nbytes) noexcept;
extern __attribute__((visibility("hidden"))) char pytracer_copy_begin[], pytracer_copy_end[], pytracer_copy_fail[];
}

// Only one instruction may fault, so the program counter identifies the fault as ours.
#if defined(__x86_64__)
asm(R"(
  .text
  .hidden pytracer_copy_bytes, pytracer_copy_begin, pytracer_copy_end, pytracer_copy_fail
  .globl pytracer_copy_bytes, pytracer_copy_begin, pytracer_copy_end, pytracer_copy_fail
  .type pytracer_copy_bytes, @function
pytracer_copy_bytes:
  .cfi_startproc
  mov %rdx, %rcx
pytracer_copy_begin:
  rep movsb
pytracer_copy_end:
  xor %eax, %eax
  ret
pytracer_copy_fail:
  mov $-1, %rax
  ret
  .cfi_endproc
  .size pytracer_copy_bytes, .-pytracer_copy_bytes
)");
#else
asm(R"(
  .text
  .hidden pytracer_copy_bytes, pytracer_copy_begin, pytracer_copy_end, pytracer_copy_fail
  .globl pytracer_copy_bytes, pytracer_copy_begin, pytracer_copy_end, pytracer_copy_fail
  .type pytracer_copy_bytes, %function
pytracer_copy_bytes:
  .cfi_startproc
  cbz x2, 2f
1:
pytracer_copy_begin:
  ldrb w3, [x1], #1
pytracer_copy_end:
  strb w3, [x0], #1
  subs x2, x2, #1
  b.ne 1b
2:
  mov x0, #0
  ret
pytracer_copy_fail:
  mov x0, #-1
  ret
  .cfi_endproc
  .size pytracer_copy_bytes, .-pytracer_copy_bytes
)");
#endif

namespace pytracer::crashsafe {
namespace {

bool debugged = false;
constinit thread_local bool t_by_kernel __attribute__((tls_model("initial-exec"))) = false;  // a CheckedReads found that our handler is not installed

enum class Copied { kAll, kUnreadable, kRefused };

Copied copy_by_kernel(void* to, uint64_t from, size_t nbytes) {
  iovec here{to, nbytes}, there{reinterpret_cast<void*>(from), nbytes};
  long n = syscall(SYS_process_vm_readv, sys_getpid(), &here, 1, &there, 1, 0);
  if (n == static_cast<long>(nbytes)) return Copied::kAll;
  return n >= 0 || errno == EFAULT ? Copied::kUnreadable : Copied::kRefused;
}

// Queried each time: another library may have replaced the handler that we installed.
bool faults_reach_us() {
  uint64_t blocked = 0;
  if (sys_mask(SIG_BLOCK, nullptr, &blocked) != 0 || (blocked & (bit_of(SIGSEGV) | bit_of(SIGBUS))) != 0) return false;
  constexpr int kOfReads[] = {SIGSEGV, SIGBUS};
  for (int signal : kOfReads) {
    KernelAction now{};
    if (sys_action(signal, nullptr, &now) != 0 || now.handler != reinterpret_cast<void*>(pytracer_enter_fault)) return false;
  }
  return true;
}

}  // namespace

CheckedReads::CheckedReads() noexcept : errno_(errno), before_(t_by_kernel) {
  if (faults_reach_us()) return;
  uint64_t word = 0;
  possible_ = t_by_kernel = copy_by_kernel(&word, reinterpret_cast<uint64_t>(&word), sizeof word) == Copied::kAll;
}

CheckedReads::~CheckedReads() noexcept {
  t_by_kernel = before_;
  errno = errno_;
}

void choose_reads() noexcept { debugged = read_status("/proc/self/status").debugged; }

bool read_bytes(void* to, uint64_t from, size_t nbytes) noexcept {
  if (from < 4096) return false;
  if (debugged || t_by_kernel) {
    Copied copied = copy_by_kernel(to, from, nbytes);
    if (copied != Copied::kRefused || t_by_kernel) return copied == Copied::kAll;
  }
  return pytracer_copy_bytes(to, reinterpret_cast<const void*>(from), nbytes) == 0;
}

bool recover_read(ucontext_t* context) noexcept {
  uint64_t pc = pc_of(context);
  if (pc < reinterpret_cast<uint64_t>(pytracer_copy_begin) || pc >= reinterpret_cast<uint64_t>(pytracer_copy_end)) return false;
  set_pc(context, reinterpret_cast<uint64_t>(pytracer_copy_fail));
  return true;
}

}  // namespace pytracer::crashsafe
