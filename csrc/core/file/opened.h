// A file descriptor for the duration of a block.
#pragma once
#include <unistd.h>

namespace pytracer::core {

class Opened {
 public:
  explicit Opened(int fd) : fd_(fd) {}
  ~Opened() {
    if (fd_ >= 0) close(fd_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  operator int() const { return fd_; }

 private:
  int fd_;
};

}  // namespace pytracer::core
