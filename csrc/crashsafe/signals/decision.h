// What becomes of a signal that met our handler, as the kernel would have decided. Pure functions over enums.
#pragma once

namespace pytracer::crashsafe {

/// What the program believes is installed.
enum class Installed { kDefault, kIgnored, kFunction };

enum class Fate {
  kIgnore,    ///< nothing happens
  kHoldBack,  ///< it stays pending until the program unblocks it
  kHandler,   ///< the program's handler runs
  kDefault,   ///< the process ends
};

/// One signal. `fault`: an instruction raised it, so the kernel forces it on the thread; else somebody sent it. `blocked`: the
/// program blocks it on this thread. `is_init`: the process is PID 1 of its namespace, which no signal with the default action
/// ends unless it is forced.
struct Arrival {
  Installed installed;
  bool fault, blocked, is_init;
};

/// kernel/signal.c: force_sig_info_to_task() resets the action of a forced signal that is blocked or ignored;
/// sig_task_ignored() drops what was sent to init.
constexpr Fate decide(const Arrival& arrival) noexcept {
  if (arrival.fault) return arrival.installed == Installed::kFunction && !arrival.blocked ? Fate::kHandler : Fate::kDefault;
  if (arrival.blocked) return Fate::kHoldBack;
  switch (arrival.installed) {
    case Installed::kFunction: return Fate::kHandler;
    case Installed::kIgnored: return Fate::kIgnore;
    case Installed::kDefault: return arrival.is_init ? Fate::kIgnore : Fate::kDefault;
  }
  return Fate::kDefault;
}

}  // namespace pytracer::crashsafe
