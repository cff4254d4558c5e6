// Replaces secrets in command lines and variables before they are written. blackbox/redaction.py does the same in Python,
// from the same tables (secret_words.inc), and a test runs both over one corpus.
#pragma once
#include <cstddef>
#include <cstdint>

namespace pytracer::crashsafe {

struct Redacted {
  size_t nbytes;   ///< what is left; never more than there was
  uint32_t count;  ///< secrets that were replaced
};

/// Words that each end with a NUL, as in /proc/PID/cmdline, in place. Takes linear time, no memory and no system call.
Redacted redact_words(char* words, size_t nbytes) noexcept;

}  // namespace pytracer::crashsafe
