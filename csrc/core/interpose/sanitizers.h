// Sanitizers' runtimes in the same process.
#pragma once

namespace pytracer::core {

/// Whether ThreadSanitizer is linked into the program. Its pthread_create then calls ours as the real one, so that our code at a thread's
/// start would run before ThreadSanitizer knows the thread, where its malloc faults.
bool thread_sanitizer_precedes_us() noexcept;

}  // namespace pytracer::core
