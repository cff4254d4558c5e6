// Sanitizers' runtimes in the same process.
#pragma once

namespace pytracer::recorder {

/// Whether ThreadSanitizer is linked into the program. Its pthread_create then calls ours as the real one, so that what we
/// put before a thread's function runs in a thread that ThreadSanitizer does not know yet, where its malloc faults.
bool thread_sanitizer_stands_before_us() noexcept;

}  // namespace pytracer::recorder
