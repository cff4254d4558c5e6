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
    for (; *s != 0; s++) put(*s, false);
    return *this;
  }
  /// One word of a command for the user to type: as it is, or in $'...' of bash and zsh. A path may contain anything.
  RawLine& word(const char* s) noexcept {
    bool plain = *s != 0;
    for (const char* c = s; *c != 0; c++) {
      auto letter = static_cast<char>(*c | 0x20);
      plain = plain && ((letter >= 'a' && letter <= 'z') || (*c >= '+' && *c <= ':') || *c == '_' || *c == '=' || *c == '@');  // + , - . / 0-9 :
    }
    if (plain) return text(s);
    text("$'");
    while (*s != 0 && put(*s, true)) s++;
    buffer_[used_++] = '\'';
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
    // A full pipe without a reader, or a stopped terminal, must not keep the process from dying; it must not die of SIGPIPE.
    pollfd target{2, POLLOUT, 0};
    timespec most{0, 100'000'000};
    if (syscall(SYS_ppoll, &target, 1, &most, nullptr, sizeof(uint64_t)) != 1 || target.revents != POLLOUT) return;
    ssize_t ignored = ::write(2, buffer_, used_);
    (void)ignored;  // there is no other channel
  }

 private:
  // Bytes other than visible ASCII could control the terminal that shows the line: they are written as \xNN.
  bool put(char c, bool quoted) noexcept {
    auto byte = static_cast<unsigned char>(c);
    bool seen = byte >= 0x20 && byte < 0x7f, escaped = quoted && (c == '\\' || c == '\'');
    size_t needed = seen ? 1 + escaped : 4;
    if (used_ + needed > sizeof buffer_ - kEnd) return false;
    if (!seen) {
      const char hex[] = {'\\', 'x', "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
      memcpy(buffer_ + used_, hex, sizeof hex);
    } else {
      if (escaped) buffer_[used_] = '\\';
      buffer_[used_ + escaped] = c;
    }
    used_ += needed;
    return true;
  }

  static constexpr size_t kEnd = 2;  // a closing quote and the end of the line
  char buffer_[1024];
  size_t used_ = 0;
};

}  // namespace pytracer::crashsafe
