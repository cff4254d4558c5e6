// Test-only: the core's redaction by itself, for comparison with blackbox/redaction.py. Built with
// crashsafe/text/redact.cpp.
#include "crashsafe/text/redact.h"

/// Redacts `words` in place; returns the bytes that are left, and the count of secrets in `count`.
extern "C" __attribute__((visibility("default"))) size_t testing_redact(char* words, size_t nbytes, uint32_t* count) {
  pytracer::crashsafe::Redacted done = pytracer::crashsafe::redact_words(words, nbytes);
  *count = done.count;
  return done.nbytes;
}
