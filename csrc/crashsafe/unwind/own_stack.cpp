#include "crashsafe/unwind/own_stack.h"

#include "crashsafe/platform/sys.h"

extern "C" {
constinit thread_local uint64_t pytracer_own_stack __attribute__((tls_model("initial-exec"), visibility("hidden"))) = 0;
}

// The entries keep the kernel's return address, of the code that ends handlers, on top: unwinders cross them by the frame pointer.
#if defined(__x86_64__)
asm(R"(
  .text
  .macro pytracer_entry name function
  .hidden \name, \function
  .globl \name
  .type \name, @function
\name:
  .cfi_startproc
  lea \function(%rip), %rcx
  jmp pytracer_on_own_stack
  .cfi_endproc
  .size \name, .-\name
  .endm
  pytracer_entry pytracer_enter_fault pytracer_on_fault
  pytracer_entry pytracer_enter_request pytracer_on_request
  pytracer_entry pytracer_enter_asked pytracer_on_asked

  .hidden pytracer_on_own_stack
  .globl pytracer_on_own_stack
  .type pytracer_on_own_stack, @function
pytracer_on_own_stack:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  mov pytracer_own_stack@gottpoff(%rip), %rax
  mov %fs:(%rax), %rax
  test %rax, %rax
  jz 1f
  mov %rax, %r8
  sub %rsp, %r8
  cmp $131072, %r8
  jb 1f
  mov %rax, %rsp
1:
  and $-16, %rsp
  call *%rcx
  mov %rbp, %rsp
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size pytracer_on_own_stack, .-pytracer_on_own_stack
)");
#else
asm(R"(
  .text
  .macro pytracer_entry name function
  .hidden \name, \function
  .globl \name
  .type \name, %function
\name:
  adrp x3, \function
  add x3, x3, :lo12:\function
  b pytracer_on_own_stack
  .size \name, .-\name
  .endm
  pytracer_entry pytracer_enter_fault pytracer_on_fault
  pytracer_entry pytracer_enter_request pytracer_on_request
  pytracer_entry pytracer_enter_asked pytracer_on_asked

  .hidden pytracer_on_own_stack
  .globl pytracer_on_own_stack
  .type pytracer_on_own_stack, %function
pytracer_on_own_stack:
  .cfi_startproc
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset 29, -16
  .cfi_offset 30, -8
  mov x29, sp
  .cfi_def_cfa_register 29
  adrp x9, :gottprel:pytracer_own_stack
  ldr x9, [x9, :gottprel_lo12:pytracer_own_stack]
  mrs x10, tpidr_el0
  ldr x9, [x10, x9]
  cbz x9, 1f
  mov x10, sp
  sub x10, x9, x10
  cmp x10, #32, lsl #12
  b.lo 1f
  mov sp, x9
1:
  blr x3
  mov sp, x29
  ldp x29, x30, [sp], #16
  .cfi_def_cfa 31, 0
  ret
  .cfi_endproc
  .size pytracer_on_own_stack, .-pytracer_on_own_stack
)");
#endif
static_assert(pytracer::crashsafe::kOwnStackBytes == 131072, "the constant in the code above");

namespace pytracer::crashsafe {

void run_undisturbed(void* argument, void (*function)(long, void*, void*)) noexcept {
  uint64_t others = ~our_signals(), before = 0;
  sys_mask(SIG_BLOCK, &others, &before);
  pytracer_on_own_stack(0, argument, nullptr, function);
  sys_mask(SIG_SETMASK, &before, nullptr);
}

stack_t own_stack() noexcept {
  stack_t stack{};
  stack.ss_sp = reinterpret_cast<void*>(pytracer_own_stack - kOwnStackBytes);
  stack.ss_size = kOwnStackBytes;
  return stack;
}

bool is_own_stack(const stack_t& stack) noexcept {
  return (stack.ss_flags & SS_DISABLE) == 0 && pytracer_own_stack != 0 && stack.ss_sp == own_stack().ss_sp;
}

void borrow_alternate_stack(const ucontext_t* context) noexcept {
  auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  if (!on_own_stack(here) || is_own_stack(context->uc_stack)) return;
  stack_t ours = own_stack();
  syscall(SYS_sigaltstack, &ours, nullptr);
}

}  // namespace pytracer::crashsafe
