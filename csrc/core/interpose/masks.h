// Signal masks below preload: what a fault may raise is never blocked in truth, and the program is told that it is.
#pragma once
#include "crashsafe/signals/stand_ins.h"

#include <csignal>
#include <cstdint>

namespace pytracer::recorder {

/// Sets as the program and as the kernel have them (crashsafe/signals/stand_ins.h).
sigset_t to_kernel(const sigset_t& set) noexcept;
void from_kernel(sigset_t& set) noexcept;

/// An action that the program installs, as libc's sigaction answers it later: with the flag and the address of its own restorer.
struct sigaction as_libc_answers(const struct sigaction& action) noexcept;

/// From now on the signals of crashsafe::kFaultSignals are hidden.
void hide_faults() noexcept;

/// One that the program ignores is blocked in truth: nobody handles it. `signal`: any.
void hide_ignored(int signal, bool ignored) noexcept;

/// The program uses this signal itself, as a handler or in a wait: it cannot stand in for another one any longer.
void give_up_stand_in(int signal) noexcept;

/// While one lives, faults of `set` that the calling thread believes blocked are: for a wait.
class TruthfulMask {
 public:
  explicit TruthfulMask(const sigset_t& set) noexcept;
  ~TruthfulMask();
  TruthfulMask(const TruthfulMask&) = delete;
  TruthfulMask& operator=(const TruthfulMask&) = delete;

 private:
  uint64_t blocked_ = 0;
};

/// The calling thread blocks in truth what it believes blocked.
void give_back_mask() noexcept;

/// The calling thread, or the program, begins: what it inherited blocked in truth gets its stand-in.
void adopt_mask() noexcept;

/// So do the masks of handlers for signals that are not ours (signals.cpp).
void give_back_handler_masks() noexcept;

}  // namespace pytracer::recorder
