// Signal masks below preload: what a fault may raise is never blocked in truth, and the program is told that it is.
#pragma once
#include <csignal>
#include <cstdint>

namespace pytracer::recorder {

/// The set without the signals that a fault may raise; `taken`: those that were in it.
sigset_t without_faults(const sigset_t& set, uint64_t& taken) noexcept;
void add_faults(sigset_t& set, uint64_t faults) noexcept;

/// While one lives, what the calling thread believes blocked is: for a wait, and for a mask that a new thread inherits.
class TruthfulMask {
 public:
  TruthfulMask() noexcept : TruthfulMask(~0ull) {}
  explicit TruthfulMask(uint64_t of) noexcept;
  ~TruthfulMask();
  TruthfulMask(const TruthfulMask&) = delete;
  TruthfulMask& operator=(const TruthfulMask&) = delete;

 private:
  uint64_t blocked_;
};

/// The calling thread, or the program, begins: unblocks what it inherited blocked and a fault may raise, and believes it blocked.
void adopt_mask() noexcept;

}  // namespace pytracer::recorder
