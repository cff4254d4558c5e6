#include "crashsafe/unwind/walk_thread.h"

#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/large.h"

#include <cstring>

// pytracer_enter(frame, nbytes, enter, argument, return_address): copies the frame to the top of the stack and enters `enter`
// as the kernel enters a signal handler: with the frame above it, to "return" into the code that ends signal handlers.
extern "C" __attribute__((visibility("hidden"), noreturn)) void pytracer_enter(const void* frame, size_t nbytes, void (*enter)(void*), void* argument,
                                                                               const void* return_address) noexcept;

#if defined(__x86_64__)
asm(R"(
  .text
  .hidden pytracer_enter
  .globl pytracer_enter
  .type pytracer_enter, @function
pytracer_enter:
  mov %rdx, %r9
  mov %rcx, %r10
  mov %rsi, %rcx
  sub %rsi, %rsp
  and $-16, %rsp
  mov %rdi, %rsi
  mov %rsp, %rdi
  rep movsb
  push %r8
  mov %r10, %rdi
  jmp *%r9
  .size pytracer_enter, .-pytracer_enter
)");
#else
// The kernel's frame begins with the siginfo; libgcc knows the two instructions that end a handler (aarch64-fallback).
extern "C" __attribute__((visibility("hidden"))) char pytracer_end_of_handler[];
asm(R"(
  .text
  .hidden pytracer_enter, pytracer_end_of_handler
  .globl pytracer_enter, pytracer_end_of_handler
  .type pytracer_enter, %function
pytracer_enter:
  mov x9, x2
  mov x10, x3
  mov x12, sp
  sub x12, x12, x1
  and x12, x12, #-16
  mov sp, x12
1:
  cbz x1, 2f
  ldr x11, [x0], #8
  str x11, [x12], #8
  sub x1, x1, #8
  b 1b
2:
  mov x30, x4
  mov x0, x10
  br x9
  nop
pytracer_end_of_handler:
  mov x8, #139
  svc #0
  .size pytracer_enter, .-pytracer_enter
)");
#endif

namespace pytracer::crashsafe {
namespace {

struct Call {
  uint64_t from;
  FrameFn visit;
  void* argument;
  bool complete;
};

void* way_back[5];

// Entered as a signal handler would be; must not return, since there is nothing to return to.
__attribute__((noinline, noreturn)) void walk_and_leave(void* raw_call) {
  auto* call = static_cast<Call*>(raw_call);
  call->complete = walk_stack(call->from, call->visit, call->argument);
  __builtin_longjmp(way_back, 1);
}

struct Frame {
#if defined(__aarch64__)
  siginfo_t info;
#endif
  ucontext_t context;
};

}  // namespace

__attribute__((noinline)) bool walk_thread(const uint64_t (&registers)[34], [[maybe_unused]] const KernelAction& like, FrameFn visit,
                                           void* argument) noexcept {
  PYTRACER_LARGE static Frame frame;  // large, and used by the reporting thread alone
  memset(static_cast<void*>(&frame), 0, sizeof frame);
  set_registers(&frame.context, registers);
  static Call call;
  call = {pc_of(&frame.context), visit, argument, false};
  if (__builtin_setjmp(way_back)) return call.complete;
#if defined(__aarch64__)
  pytracer_enter(&frame, sizeof frame, walk_and_leave, &call, pytracer_end_of_handler);
#else
  pytracer_enter(&frame, sizeof frame, walk_and_leave, &call, like.restorer);
#endif
}

}  // namespace pytracer::crashsafe
