// The first facts of a process: its command line and its environment, redacted.
#pragma once

namespace pytracer::core {

/// Appends PROCESS and ENVIRONMENT. `arguments`: main()'s, which save reading the kernel's file; null where they may have changed. While
/// the process has one thread.
void write_process(const char* const* arguments) noexcept;

}  // namespace pytracer::core
