#include "crashsafe/signals/actions.h"

#include "crashsafe/file/seq_slot.h"

#include <array>
#include <atomic>

namespace pytracer::crashsafe {
namespace {

constexpr uint32_t kItems = 4;
constexpr int kYields = 1000;

struct Item {
  uint64_t order;
  struct sigaction action;
};
// Side by side: all 64 would be five pages, four of them touched by every process.
constexpr size_t kSignalsKept = sizeof kWithAction / sizeof kWithAction[0];
constexpr auto kPlaces = [] {
  std::array<uint8_t, 65> places{};
  for (auto& place : places) place = kSignalsKept;  // of all others: the default action
  for (uint8_t i = 0; i < kSignalsKept; i++) places[kWithAction[i]] = i;
  return places;
}();

// Any number of threads may change an action at once, and a handler may (SA_RESETHAND) interrupt a change on its own thread. So each change
// claims an item that no other one writes, and takes effect when `current` names that item.
struct Action {
  Item items[kItems];
  std::atomic<uint64_t> current;  // number of a change * kItems + its item; 0: none yet, the default action
  std::atomic<uint64_t> changes;
  std::atomic<uint32_t> claimed;  // a bit each: being written, or the current one
};
constinit Action actions[kSignalsKept + 1] = {};  // constinit: the preloaded constructor runs before other initializers would

uint32_t bit_of(uint32_t item) { return 1u << item; }

struct sigaction read_current(Action& entry, uint64_t& name) {
  for (Item copy{};;) {
    name = entry.current.load(std::memory_order_acquire);
    if (name == 0) return {};
    if (SeqSlot(entry.items[name % kItems]).read(copy) == name) return copy.action;
    // Another change took effect meanwhile, and yet another one has the item.
  }
}

// acquire: the item must not be written before it is claimed, nor before its previous owner has finished with it.
uint32_t claim(Action& entry) {
  for (int yields = 0;; yields++) {
    for (uint32_t item = 0; item < kItems; item++) {
      // Claims of threads that a forked child does not have are never given up: after a while they count no more.
      bool free = (entry.claimed.load(std::memory_order_relaxed) & bit_of(item)) == 0 ||
                  (yields >= kYields && entry.current.load(std::memory_order_relaxed) % kItems != item);
      if (!free) continue;
      if ((entry.claimed.fetch_or(bit_of(item), std::memory_order_acquire) & bit_of(item)) == 0 || yields >= kYields) return item;
    }
    syscall(SYS_sched_yield);
  }
}

void give_up(Action& entry, uint64_t name) {
  if (name != 0) entry.claimed.fetch_and(~bit_of(static_cast<uint32_t>(name % kItems)), std::memory_order_release);
}

// The name of a change that is written and has not taken effect.
uint64_t prepare(Action& entry, const struct sigaction& action) {
  uint32_t item = claim(entry);
  uint64_t name = (entry.changes.fetch_add(1, std::memory_order_relaxed) + 1) * kItems + item;
  SeqSlot(entry.items[item]).write(name, [&](Item& written) { written.action = action; });
  return name;
}

bool is_same(const struct sigaction& one, const struct sigaction& other) {
  return one.sa_sigaction == other.sa_sigaction && one.sa_flags == other.sa_flags;
}

}  // namespace

struct sigaction action_of(int signal) noexcept {
  uint64_t name = 0;
  return read_current(actions[kPlaces[signal]], name);
}

Disposition disposition_of(const struct sigaction& action) noexcept {
  if (action.sa_handler == SIG_DFL) return Disposition::kDefault;
  return action.sa_handler == SIG_IGN ? Disposition::kIgnored : Disposition::kFunction;
}

void exchange_action(int signal, const struct sigaction& act, struct sigaction* old) noexcept {
  Action& entry = actions[kPlaces[signal]];
  uint64_t mine = prepare(entry, act), before = 0;
  struct sigaction replaced{};
  do replaced = read_current(entry, before);
  while (!entry.current.compare_exchange_strong(before, mine, std::memory_order_acq_rel));
  give_up(entry, before);
  if (old != nullptr) *old = replaced;
}

void reset_action(int signal, const struct sigaction& delivered) noexcept {
  Action& entry = actions[kPlaces[signal]];
  uint64_t before = 0;
  if (!is_same(read_current(entry, before), delivered)) return;
  struct sigaction reset = delivered;
  reset.sa_handler = SIG_DFL;
  uint64_t mine = prepare(entry, reset);
  give_up(entry, entry.current.compare_exchange_strong(before, mine, std::memory_order_acq_rel) ? before : mine);
}

}  // namespace pytracer::crashsafe
