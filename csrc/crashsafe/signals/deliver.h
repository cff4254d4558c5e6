// Delivers a signal to the program's own handler as the kernel would have: on the stack that the program's action asks for, under its
// mask, with a frame for rt_sigreturn. No frame of ours is below it: the handler may return, wait, fault, leave by a jump or never end.
#pragma once
#include <ucontext.h>
#include <csignal>
#include <cstdint>

namespace pytracer::crashsafe {

/// How one signal is delivered. `mask`: the kernel's mask while the handler runs. `noted`: its return calls
/// on_handler_returned().
struct Delivery {
  int signal;
  siginfo_t* info;
  ucontext_t* context;
  void* handler;
  bool on_alternate_stack;  ///< SA_ONSTACK
  bool noted;
  uint64_t mask;
};

/// The frame of a delivered signal.
struct DeliveredFrame {
  siginfo_t* info;
  ucontext_t* context;
  uint64_t base;  ///< the stack pointer on entry to the handler
};

/// Called from our handler: finds or makes the frame. False when it cannot be written, as on a stack that overflowed: the kernel
/// ends the process then.
bool make_frame(const Delivery& delivery, DeliveredFrame& frame) noexcept;

/// The frame of a handler that was entered, by its stack pointer; false when it has been overwritten.
bool frame_at(uint64_t base, DeliveredFrame& frame) noexcept;

/// Leaves our handler for good and enters the program's.
[[noreturn]] void enter_handler(const Delivery& delivery, const DeliveredFrame& frame, int error_number) noexcept;

/// True when `sp` is that of code called by the handler whose frame is at `base`; `alternate`: the program's alternate stack.
bool runs_inside(uint64_t sp, uint64_t base, const stack_t& alternate) noexcept;

/// A handler that was noted has returned; on the own stack, before the interrupted code continues. Defined by the handler.
void on_handler_returned(ucontext_t* context) noexcept;

/// The restorer that libc's sigaction gives the kernel; null: the kernel's own. To be set before anything is delivered.
void set_end_of_handlers(void* restorer) noexcept;
const void* end_of_libcs_handlers() noexcept;

}  // namespace pytracer::crashsafe
