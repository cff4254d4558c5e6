#include "safe_read.h"

#include "arch.h"
#include "process_status.h"
#include "sys.h"

#include <sys/uio.h>
#include <cerrno>

extern "C" {
__attribute__((visibility("hidden"))) long pytracer_copy_bytes(void* to, const void* from, size_t nbytes) noexcept;
extern __attribute__((visibility("hidden"))) char pytracer_copy_begin[], pytracer_copy_end[], pytracer_copy_fail[];
}

// One instruction may fault, so the program counter alone tells that a fault is ours.
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

}  // namespace

void choose_reads() noexcept { debugged = read_status("/proc/self/status").debugged; }

bool read_bytes(void* to, uint64_t from, size_t nbytes) noexcept {
  if (debugged && from > 4095) {
    iovec here{to, nbytes}, there{reinterpret_cast<void*>(from), nbytes};
    long n = syscall(SYS_process_vm_readv, sys_getpid(), &here, 1, &there, 1, 0);
    if (n >= 0 || errno == EFAULT) return n == static_cast<long>(nbytes);
  }
  return from > 4095 && pytracer_copy_bytes(to, reinterpret_cast<const void*>(from), nbytes) == 0;
}

bool recover_read(ucontext_t* context) noexcept {
  uint64_t pc = pc_of(context);
  if (pc < reinterpret_cast<uint64_t>(pytracer_copy_begin) || pc >= reinterpret_cast<uint64_t>(pytracer_copy_end)) return false;
  set_pc(context, reinterpret_cast<uint64_t>(pytracer_copy_fail));
  return true;
}

}  // namespace pytracer::crashsafe
