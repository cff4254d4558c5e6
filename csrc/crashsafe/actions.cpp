#include "actions.h"

#include <atomic>

namespace pytracer::crashsafe {
namespace {

// Two slots and an index.
struct Action {
  struct sigaction slot[2] = {};
  std::atomic<uint32_t> current{0};
};
constinit Action actions[65];  // constinit: the preloaded constructor runs before other initializers would

}  // namespace

struct sigaction action_of(int signal) noexcept { return actions[signal].slot[actions[signal].current.load(std::memory_order_acquire)]; }

Installed installed_of(const struct sigaction& action) noexcept {
  if (action.sa_handler == SIG_DFL) return Installed::kDefault;
  return action.sa_handler == SIG_IGN ? Installed::kIgnored : Installed::kFunction;
}

void exchange_action(int signal, const struct sigaction* act, struct sigaction* old) noexcept {
  Action& entry = actions[signal];
  uint32_t current = entry.current.load(std::memory_order_acquire);
  struct sigaction before = entry.slot[current];
  if (act != nullptr) {
    entry.slot[current ^ 1] = *act;
    entry.current.store(current ^ 1, std::memory_order_release);
  }
  if (old != nullptr) *old = before;
}

}  // namespace pytracer::crashsafe
