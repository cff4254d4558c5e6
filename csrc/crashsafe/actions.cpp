#include "actions.h"

#include <array>
#include <atomic>

namespace pytracer::crashsafe {
namespace {

// Two slots and an index.
struct Action {
  struct sigaction slot[2] = {};
  std::atomic<uint32_t> current{0};
};
// The signals that anybody exchanges, side by side: all 64 would be five pages, of which every process touched four.
constexpr int kKept[] = {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU};
constexpr size_t kSignalsKept = sizeof kKept / sizeof kKept[0];
constexpr auto kPlaces = [] {
  std::array<uint8_t, 65> places{};
  for (auto& place : places) place = kSignalsKept;  // of all others: the default action
  for (uint8_t i = 0; i < kSignalsKept; i++) places[kKept[i]] = i;
  return places;
}();
constinit Action actions[kSignalsKept + 1];  // constinit: the preloaded constructor runs before other initializers would

}  // namespace

struct sigaction action_of(int signal) noexcept {
  const Action& entry = actions[kPlaces[signal]];
  return entry.slot[entry.current.load(std::memory_order_acquire)];
}

Installed installed_of(const struct sigaction& action) noexcept {
  if (action.sa_handler == SIG_DFL) return Installed::kDefault;
  return action.sa_handler == SIG_IGN ? Installed::kIgnored : Installed::kFunction;
}

void exchange_action(int signal, const struct sigaction* act, struct sigaction* old) noexcept {
  Action& entry = actions[kPlaces[signal]];
  uint32_t current = entry.current.load(std::memory_order_acquire);
  struct sigaction before = entry.slot[current];
  if (act != nullptr) {
    entry.slot[current ^ 1] = *act;
    entry.current.store(current ^ 1, std::memory_order_release);
  }
  if (old != nullptr) *old = before;
}

}  // namespace pytracer::crashsafe
