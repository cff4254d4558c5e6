#include "crashsafe/signals/deliver.h"

#include "crashsafe/platform/arch.h"
#include "crashsafe/platform/safe_read.h"
#include "crashsafe/platform/sys.h"
#include "crashsafe/unwind/own_stack.h"

#include <cerrno>
#include <cstddef>
#include <cstring>

extern "C" {
/// What pytracer_enter_handler loads. `stack`: a stack_t for sigaltstack(2), or null.
struct pytracer_entry {
  uint64_t base, handler, signal;
  const void *info, *context, *stack, *return_address;
  uint64_t mask;
};
__attribute__((visibility("hidden"), noreturn)) void pytracer_enter_handler(const pytracer_entry*) noexcept;
extern __attribute__((visibility("hidden"))) char pytracer_noted_end[];
#if defined(__aarch64__)
extern __attribute__((visibility("hidden"))) char pytracer_end_of_handler[];  // walk_thread.cpp
#endif
}

// pytracer_enter_handler: the stack pointer first, since the kernel refuses to change the alternate stack in use. The mask last: a
// signal that it lets through is answered on top of the handler that begins. Arithmetic controls as the kernel sets them.
//
// pytracer_noted_end: where a noted handler returns to, its ucontext_t on top of the stack. Its call-frame information declares a signal
// frame and the places of the interrupted registers in uc_mcontext.gregs; the nop is for unwinders that look up the byte before.
#if defined(__x86_64__)
asm(R"(
  .text
  .hidden pytracer_enter_handler, pytracer_noted_end
  .globl pytracer_enter_handler, pytracer_noted_end
  .type pytracer_enter_handler, @function
pytracer_enter_handler:
  mov 0(%rdi), %rsp
  mov 8(%rdi), %r12
  mov 16(%rdi), %r13
  mov 24(%rdi), %r14
  mov 32(%rdi), %r15
  mov 48(%rdi), %rax
  mov %rax, (%rsp)
  push 56(%rdi)
  mov 40(%rdi), %rdi
  test %rdi, %rdi
  jz 1f
  xor %esi, %esi
  mov $131, %eax
  syscall
1:
  fninit
  push $0x1f80
  ldmxcsr (%rsp)
  add $8, %rsp
  cld
  mov $2, %edi
  mov %rsp, %rsi
  xor %edx, %edx
  mov $8, %r10d
  mov $14, %eax
  syscall
  add $8, %rsp
  mov %r13, %rdi
  mov %r14, %rsi
  mov %r15, %rdx
  xor %eax, %eax
  jmp *%r12
  .size pytracer_enter_handler, .-pytracer_enter_handler

  .macro pytracer_saved register offset
  .cfi_escape 0x10, \register, 3, 0x77, (\offset & 0x7f) | 0x80, \offset >> 7
  .endm
  .cfi_startproc
  .cfi_signal_frame
  .cfi_escape 0x0f, 4, 0x77, (160 & 0x7f) | 0x80, 160 >> 7, 0x06
  pytracer_saved 8 40
  pytracer_saved 9 48
  pytracer_saved 10 56
  pytracer_saved 11 64
  pytracer_saved 12 72
  pytracer_saved 13 80
  pytracer_saved 14 88
  pytracer_saved 15 96
  pytracer_saved 5 104
  pytracer_saved 4 112
  pytracer_saved 6 120
  pytracer_saved 3 128
  pytracer_saved 1 136
  pytracer_saved 0 144
  pytracer_saved 2 152
  pytracer_saved 7 160
  pytracer_saved 16 168
  nop
  .type pytracer_noted_end, @function
pytracer_noted_end:
  xor %edi, %edi
  mov %rsp, %rsi
  xor %edx, %edx
  lea pytracer_handler_returned(%rip), %rcx
  call pytracer_on_own_stack
  mov $15, %eax
  syscall
  .cfi_endproc
  .size pytracer_noted_end, .-pytracer_noted_end
)");
#else
asm(R"(
  .text
  .hidden pytracer_enter_handler, pytracer_noted_end
  .globl pytracer_enter_handler, pytracer_noted_end
  .type pytracer_enter_handler, %function
pytracer_enter_handler:
  ldp x9, x19, [x0]
  ldp x20, x21, [x0, #16]
  ldp x22, x10, [x0, #32]
  ldp x23, x11, [x0, #48]
  mov sp, x9
  str x11, [sp, #-16]!
  cbz x10, 1f
  mov x0, x10
  mov x1, #0
  mov x8, #132
  svc #0
1:
  mov x0, #2
  mov x1, sp
  mov x2, #0
  mov x3, #8
  mov x8, #135
  svc #0
  add sp, sp, #16
  mov x0, x20
  mov x1, x21
  mov x2, x22
  mov x30, x23
  br x19
  .size pytracer_enter_handler, .-pytracer_enter_handler

  .type pytracer_noted_end, %function
pytracer_noted_end:
  mov x0, #0
  add x1, sp, #128
  mov x2, #0
  adrp x3, pytracer_handler_returned
  add x3, x3, :lo12:pytracer_handler_returned
  bl pytracer_on_own_stack
  mov x8, #139
  svc #0
  .size pytracer_noted_end, .-pytracer_noted_end
)");
#endif

namespace pytracer::crashsafe {
namespace {

#if defined(__aarch64__)
const void* end_of_handlers = pytracer_end_of_handler;  // the kernel's is in the vDSO: libc names none
#else
const void* end_of_handlers = nullptr;
#endif

// struct rt_sigframe of the kernel (arch/x86/include/asm/sigframe.h, arch/arm64/kernel/signal.c). Its ucontext is shorter than libc's.
#if defined(__x86_64__)
constexpr size_t kContextBytes = offsetof(ucontext_t, uc_sigmask) + sizeof(uint64_t), kContextAt = 8, kInfoAt = kContextAt + kContextBytes;
constexpr size_t kFrameBytes = kInfoAt + sizeof(siginfo_t), kRedZone = 128, kOffBy = 8;
#else
constexpr size_t kContextBytes = sizeof(ucontext_t), kInfoAt = 0, kContextAt = sizeof(siginfo_t);
constexpr size_t kFrameBytes = kContextAt + kContextBytes, kRedZone = 0, kOffBy = 0;
#endif

uint64_t frame_of(const ucontext_t* context) { return reinterpret_cast<uint64_t>(context) - kContextAt; }

bool lies_on(uint64_t addr, const stack_t& stack) {
  return (stack.ss_flags & SS_DISABLE) == 0 && addr - reinterpret_cast<uint64_t>(stack.ss_sp) < stack.ss_size;
}

// The kernel's frame is where the program's would be, unless it is on our stack, or on an alternate one that the program's
// action does not ask for. An action that asks for one gets ours where the program has none: Go asks the kernel, not libc, which
// alternate stack there is, and ends the process when its handler runs elsewhere.
bool is_in_place(const Delivery& delivery) {
  const stack_t& alternate = delivery.context->uc_stack;
  uint64_t sp = sp_of(delivery.context), frame = frame_of(delivery.context);
  if (on_own_stack(frame)) return on_own_stack(sp) || delivery.on_alternate_stack;
  return !lies_on(frame, alternate) || delivery.on_alternate_stack || lies_on(sp, alternate);
}

bool write_bytes(uint64_t to, const void* from, size_t nbytes) {
  return read_bytes(reinterpret_cast<void*>(to), reinterpret_cast<uint64_t>(from), nbytes);
}

#if defined(__x86_64__)
// Registers beyond the general ones: XSAVE's area and its size, when its header has the magic number (asm/sigcontext.h).
bool copy_wide_registers(const ucontext_t* from, uint64_t& top, ucontext_t& to) {
  const char* area = reinterpret_cast<const char*>(from->uc_mcontext.fpregs);
  if (area == nullptr) return true;
  constexpr uint32_t kXsaveMagic = 0x46505853;
  uint32_t magic = 0, nbytes = 512;
  memcpy(&magic, area + 464, sizeof magic);
  if (magic == kXsaveMagic) memcpy(&nbytes, area + 468, sizeof nbytes);
  top = (top - nbytes) & ~63ull;
  to.uc_mcontext.fpregs = reinterpret_cast<fpregset_t>(top);
  return write_bytes(top, area, nbytes);
}
#else
// Those that do not fit into the context (SVE) lie behind a record that points at them (asm/sigcontext.h).
bool copy_wide_registers(const ucontext_t* from, uint64_t& top, ucontext_t& to) {
  struct Record {
    uint32_t magic, nbytes;
    uint64_t data;
    uint32_t data_nbytes;
  };
  constexpr uint32_t kExtraMagic = 0x45585401;
  auto* area = reinterpret_cast<const char*>(from->uc_mcontext.__reserved);
  for (size_t at = 0; at + sizeof(Record) <= sizeof from->uc_mcontext.__reserved;) {
    Record record;
    memcpy(&record, area + at, sizeof record);
    if (record.magic == 0 || record.nbytes == 0) break;
    if (record.magic == kExtraMagic) {
      auto* data = reinterpret_cast<const void*>(record.data);
      top = (top - record.data_nbytes) & ~15ull;
      record.data = top;
      memcpy(reinterpret_cast<char*>(to.uc_mcontext.__reserved) + at, &record, sizeof record);
      return write_bytes(top, data, record.data_nbytes);
    }
    at += record.nbytes;
  }
  return true;
}
#endif

bool copy_frame(const Delivery& delivery, DeliveredFrame& frame) {
  static_assert(sizeof(ucontext_t) >= kContextBytes);
  ucontext_t context;
  memcpy(static_cast<void*>(&context), delivery.context, kContextBytes);
  uint64_t top = sp_of(delivery.context) - kRedZone;
  if (!copy_wide_registers(delivery.context, top, context)) return false;
  frame.base = ((top - kFrameBytes) & ~15ull) - kOffBy;
  frame.info = reinterpret_cast<siginfo_t*>(frame.base + kInfoAt);
  frame.context = reinterpret_cast<ucontext_t*>(frame.base + kContextAt);
  return write_bytes(frame.base + kContextAt, &context, kContextBytes) && write_bytes(frame.base + kInfoAt, delivery.info, sizeof(siginfo_t)) &&
         write_bytes(frame.base - 16, &context, 16);  // what entering pushes
}

}  // namespace

void set_end_of_handlers(void* restorer) noexcept {
  if (restorer != nullptr) end_of_handlers = restorer;
}

const void* end_of_libcs_handlers() noexcept { return end_of_handlers; }

bool make_frame(const Delivery& delivery, DeliveredFrame& frame) noexcept {
  if (!is_in_place(delivery)) return copy_frame(delivery, frame);
  frame = {delivery.info, delivery.context, frame_of(delivery.context)};
  return true;
}

bool frame_at(uint64_t base, DeliveredFrame& frame) noexcept {
  frame = {reinterpret_cast<siginfo_t*>(base + kInfoAt), reinterpret_cast<ucontext_t*>(base + kContextAt), base};
  int signal = 0;
  return read_value(signal, base + kInfoAt + offsetof(siginfo_t, si_signo)) && is_ours(signal);
}

void enter_handler(const Delivery& delivery, const DeliveredFrame& frame, int error_number) noexcept {
  const stack_t& alternate = frame.context->uc_stack;
  // One that the kernel disarms while a handler runs stays disabled until the handler returns; ours may be used meanwhile.
  bool give_back = !is_own_stack(alternate) && pytracer_own_stack != 0 && (alternate.ss_flags & static_cast<int>(1u << 31)) == 0;
  pytracer_entry entry{};
  entry.base = frame.base;
  entry.handler = reinterpret_cast<uint64_t>(delivery.handler);
  entry.signal = static_cast<uint64_t>(delivery.signal);
  entry.info = frame.info;
  entry.context = frame.context;
  entry.stack = give_back ? &alternate : nullptr;
  entry.return_address = delivery.noted ? pytracer_noted_end : end_of_handlers;
  entry.mask = delivery.mask;
  errno = error_number;
  pytracer_enter_handler(&entry);
}

bool runs_inside(uint64_t sp, uint64_t base, const stack_t& alternate) noexcept {
  if (on_own_stack(base)) return on_own_stack(sp);
  if (!is_own_stack(alternate)) {
    if (lies_on(base, alternate)) return lies_on(sp, alternate);
    if (lies_on(sp, alternate)) return true;  // a signal inside the handler that has the alternate stack
  }
  return sp <= base;
}

}  // namespace pytracer::crashsafe

extern "C" __attribute__((visibility("hidden"))) void pytracer_handler_returned(long, void* context, void*) noexcept;
void pytracer_handler_returned(long, void* context, void*) noexcept {
  using namespace pytracer::crashsafe;
  int saved_errno = errno;
  borrow_alternate_stack(static_cast<ucontext_t*>(context));
  on_handler_returned(static_cast<ucontext_t*>(context));
  errno = saved_errno;
}
