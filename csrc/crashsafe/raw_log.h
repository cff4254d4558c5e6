// Fixed text and numbers to file descriptor 2, without stdio or allocation.
#pragma once
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdint>
#include <cstring>
#include <ctime>

namespace pytracer::crashsafe {

/// Collects one line and writes it with a single write(2), so that lines of several ranks do not mix.
class RawLine {
 public:
  RawLine& text(const char* s) noexcept {
    size_t n = strlen(s);
    if (n > sizeof buffer_ - used_ - 1) n = sizeof buffer_ - used_ - 1;
    memcpy(buffer_ + used_, s, n);
    used_ += n;
    return *this;
  }
  RawLine& number(uint64_t value, unsigned base = 10) noexcept {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do digits[--at] = "0123456789abcdef"[value % base];
    while ((value /= base) != 0);
    if (base == 16) text("0x");
    return text(digits + at);
  }
  void write_out() noexcept {
    buffer_[used_++] = '\n';
    // A full pipe that nobody reads, or a stopped terminal, must not keep the process from dying; SIGPIPE must not be how.
    pollfd target{2, POLLOUT, 0};
    timespec most{0, 100'000'000};
    if (syscall(SYS_ppoll, &target, 1, &most, nullptr, sizeof(uint64_t)) != 1 || target.revents != POLLOUT) return;
    ssize_t ignored = ::write(2, buffer_, used_);
    (void)ignored;  // nobody is left to be told
  }

 private:
  char buffer_[1024];
  size_t used_ = 0;
};

}  // namespace pytracer::crashsafe
