// What differs between processors: registers in a ucontext, what they say of a fault, and the addresses that there are.
#pragma once
#include "crashsafe/platform/syndrome.h"

#include <ucontext.h>
#include <cstdint>
#include <cstring>

namespace pytracer::crashsafe {

#if defined(__x86_64__)
inline constexpr uint32_t kArch = 1;
inline constexpr uint64_t kLargestPage = 4096;             ///< of any kernel for this processor
inline constexpr uint64_t kUserAddressesEnd = 1ull << 47;  ///< unless a program asks mmap() for more
inline constexpr uint32_t kPointerRegisters = 16, kStackPointerIndex = REG_RSP, kFramePointerIndex = REG_RBP, kProgramCounterIndex = REG_RIP;
inline uint64_t pc_of(const ucontext_t* context) { return context->uc_mcontext.gregs[REG_RIP]; }
inline uint64_t sp_of(const ucontext_t* context) { return context->uc_mcontext.gregs[REG_RSP]; }
inline uint64_t fp_of(const ucontext_t* context) { return context->uc_mcontext.gregs[REG_RBP]; }
inline void set_pc(ucontext_t* context, uint64_t value) { context->uc_mcontext.gregs[REG_RIP] = value; }
inline void set_sp(ucontext_t* context, uint64_t value) { context->uc_mcontext.gregs[REG_RSP] = value; }
inline void set_fp(ucontext_t* context, uint64_t value) { context->uc_mcontext.gregs[REG_RBP] = value; }
inline uint64_t error_of(const ucontext_t* context) { return context->uc_mcontext.gregs[REG_ERR]; }
inline uint64_t trap_of(const ucontext_t* context) { return context->uc_mcontext.gregs[REG_TRAPNO]; }
/// A return address without the signature of pointer authentication.
inline uint64_t without_signature(uint64_t addr) { return addr; }
/// Where a breakpoint instruction is that trapped with this program counter; the same address where the counter stays.
inline uint64_t breakpoint_before(uint64_t pc) { return *reinterpret_cast<const unsigned char*>(pc - 1) == 0xcc ? pc - 1 : pc; }
inline void copy_registers(const ucontext_t* context, uint64_t (&out)[34]) {
  static_assert(sizeof(context->uc_mcontext.gregs) <= sizeof(out));
  memcpy(out, context->uc_mcontext.gregs, sizeof(context->uc_mcontext.gregs));
}
inline void set_registers(ucontext_t* context, const uint64_t (&from)[34]) {
  memcpy(context->uc_mcontext.gregs, from, sizeof(context->uc_mcontext.gregs));
}
#elif defined(__aarch64__)
inline constexpr uint32_t kArch = 2;
inline constexpr uint64_t kLargestPage = 65536;            // kernels have 4, 16 or 64 KiB
inline constexpr uint64_t kUserAddressesEnd = 1ull << 48;  // mmap() begins right below
inline constexpr uint32_t kPointerRegisters = 32, kStackPointerIndex = 31, kFramePointerIndex = 29, kProgramCounterIndex = 32;
inline uint64_t pc_of(const ucontext_t* context) { return context->uc_mcontext.pc; }
inline uint64_t sp_of(const ucontext_t* context) { return context->uc_mcontext.sp; }
inline uint64_t fp_of(const ucontext_t* context) { return context->uc_mcontext.regs[29]; }
inline void set_pc(ucontext_t* context, uint64_t value) { context->uc_mcontext.pc = value; }
inline void set_sp(ucontext_t* context, uint64_t value) { context->uc_mcontext.sp = value; }
inline void set_fp(ucontext_t* context, uint64_t value) { context->uc_mcontext.regs[29] = value; }
inline uint64_t error_of(const ucontext_t* context) { return syndrome_in(context->uc_mcontext.__reserved, sizeof context->uc_mcontext.__reserved); }
inline uint64_t trap_of(const ucontext_t*) { return ~0ull; }
/// XPACLRI, by its number: an instruction without effect on processors that have no signatures.
inline uint64_t without_signature(uint64_t addr) {
  asm("mov x30, %0\n\thint #7\n\tmov %0, x30" : "+r"(addr) : : "x30");
  return addr;
}
inline uint64_t link_of(const ucontext_t* context) { return context->uc_mcontext.regs[30]; }
inline uint64_t breakpoint_before(uint64_t pc) { return pc; }
inline void copy_registers(const ucontext_t* context, uint64_t (&out)[34]) {
  memcpy(out, context->uc_mcontext.regs, 31 * sizeof(uint64_t));
  out[31] = context->uc_mcontext.sp;
  out[32] = context->uc_mcontext.pc;
  out[33] = context->uc_mcontext.pstate;
}
inline void set_registers(ucontext_t* context, const uint64_t (&from)[34]) {
  memcpy(context->uc_mcontext.regs, from, 31 * sizeof(uint64_t));
  context->uc_mcontext.sp = from[31];
  context->uc_mcontext.pc = from[32];
  context->uc_mcontext.pstate = from[33];
}
#else
#error "pytracer knows x86-64 and aarch64"
#endif

}  // namespace pytracer::crashsafe
