// The context of a crash in the process: the C library's abort message, the sender of the signal, the file behind a mapping, memory near
// the registers.
#pragma once

namespace pytracer::crashsafe {

/// Where glibc keeps what it prints before abort(): the address of `__abort_msg`, or null. Found outside the handler.
void set_abort_message(const void* abort_msg) noexcept;

/// Crash step: the C library's abort message, and the command line of the process that sent the signal.
void write_messages() noexcept;

/// Crash step, after write_maps: size and room of the mapped file that the fault address lies in, at this moment.
void write_fault_file() noexcept;

/// Crash step, after write_maps: memory near the addresses that the registers hold, and the top of the stack.
void write_memory() noexcept;

}  // namespace pytracer::crashsafe
