// What else the report needs from a dying process: last words of the C library, the sender of a signal, the file behind a
// mapping, memory near the registers.
#pragma once

namespace pytracer::crashsafe {

/// Where glibc keeps what it prints before abort(): the address of `__abort_msg`, or null. Found outside the handler.
void set_abort_message(const void* abort_msg) noexcept;

/// Crash step: the C library's last words, and the command line of the process that sent the signal.
void write_words() noexcept;

/// Crash step, after write_maps: size and room of the mapped file that the fault address lies in, at this moment.
void write_fault_file() noexcept;

/// Crash step, after write_maps: memory near the addresses that the registers hold, and the top of the stack.
void write_memory() noexcept;

}  // namespace pytracer::crashsafe
