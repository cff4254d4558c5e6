// Signal masks under preload: signals of faults are never really blocked; the program sees them as blocked when it blocks them.
#pragma once
#include "crashsafe/signals/stand_ins.h"

#include <csignal>
#include <cstdint>

namespace pytracer::core {

/// Sets as the program and as the kernel have them (crashsafe/signals/stand_ins.h).
sigset_t to_kernel(const sigset_t& set) noexcept;
void from_kernel(sigset_t& set) noexcept;

/// An action that the program installs, as libc's sigaction returns it later: with the flag and the address of its own restorer.
struct sigaction as_libc_answers(const struct sigaction& action) noexcept;

/// From now on the signals of crashsafe::kFaultSignals are hidden.
void hide_faults() noexcept;

/// An ignored signal may really be blocked, since no handler gets it. `signal`: any.
void hide_ignored(int signal, bool ignored) noexcept;

/// The program uses this signal itself, with a handler or in a wait: it can no longer be a stand-in.
void give_up_stand_in(int signal) noexcept;

/// While it exists, faults of `set` that the calling thread believes blocked really are: for a wait.
class TruthfulMask {
 public:
  explicit TruthfulMask(const sigset_t& set) noexcept;
  ~TruthfulMask();
  TruthfulMask(const TruthfulMask&) = delete;
  TruthfulMask& operator=(const TruthfulMask&) = delete;

 private:
  uint64_t blocked_ = 0;
};

/// The calling thread really blocks what it believes blocked.
void restore_mask() noexcept;

/// The calling thread, or the program, begins: inherited signals that are really blocked get their stand-ins.
void adopt_mask() noexcept;

/// The same for the masks of handlers for signals that are not ours (signals.cpp).
void restore_handler_masks() noexcept;

}  // namespace pytracer::core
