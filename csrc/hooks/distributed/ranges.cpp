// Named ranges (USER_SCOPE): progress of collectives, as gloo:* and nccl:*; DDP's forward, FSDP's steps. Nothing per operator.
// A range of FSDP is also the scope of the calls inside of it: its name contains the unit's, e.g. "FSDP::all_gather (layers.0)".
// Each gets our callback in at::RecordFunction's constructor. A global callback would be simpler, but torch copies the list of those
// for every autograd node, 1700 instructions for a single one (docs/measurements/cost.md).
// Watched from the first collective on: optimizers create ranges at each step, for which a process without collectives need not pay.
#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/distributed/collectives.h"
#include "hooks/hooks.h"
#include "hooks/support/got_patch.h"
#include "hooks/support/per_process.h"
#include "hooks/support/stream.h"
#include "hooks/support/tensors.h"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pytracer::hooks {

// The constructor: declared by its symbol, since its address cannot be taken. Weak: null where torch has another symbol.
void construct(at::RecordFunction*, at::RecordScope) __asm__("_ZN2at14RecordFunctionC1ENS_11RecordScopeE") __attribute__((weak));

namespace {

using blackbox::CollectiveState;
using blackbox::RecordKind;
constexpr const char* kBackends[] = {"gloo:", "nccl:", "ucc:", "mpi:", "xccl:"};
enum class State { kOff, kReady, kWatched, kWatchedGlobally };
std::atomic<State> state{State::kOff};
struct Changes {};
PerProcess<Changes> changes;           // serializes changes of the state
thread_local bool was_called = false;  // a range was constructed by our function
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

// Carried from start to end: the name may be freed by then, and a collective may end on another thread.
struct Range final : at::ObserverContext {
  bool is_collective = false;
  uint64_t number = 0;
  uint32_t scope = 0, outer_scope = 0;
  blackbox::NodeRecord range{};
};

// Names of scopes are journalled once. Each unit has a handful; a program that generates new ones without end is cut off.
constexpr size_t kScopeNames = 16384;
PerProcess<std::unordered_map<std::string, uint32_t>> scopes;

uint32_t scope_named(const char* name) {
  if (strncmp(name, "FSDP::", 6) != 0) return 0;
  return scopes.with([&](auto& ids) -> uint32_t {
    auto found = ids.find(name);
    if (found != ids.end()) return found->second;
    if (ids.size() >= kScopeNames) return 0;
    uint32_t id = pytracer_journal(static_cast<uint32_t>(blackbox::EntryKind::kScope), name, strlen(name));
    if (id != 0) ids.emplace(name, id);
    return id;
  });
}

bool is_collective(const char* name) {
  return std::any_of(std::begin(kBackends), std::end(kBackends), [&](const char* prefix) { return strncmp(name, prefix, strlen(prefix)) == 0; });
}

// NCCL's ranges end when the work is queued on a CUDA stream: its progress is only in its own records (record/cuda/nccl.py).
bool only_queues(const char* name) { return strncmp(name, "nccl:", 5) == 0; }

void reached(uint64_t number, CollectiveState state) { pytracer_collective_reached(number, static_cast<uint32_t>(state)); }

// "gloo:all_reduce" and "allreduce_coalesced_" without the differences between the spellings of c10d and of the backends.
struct PlainName {
  char text[32] = {};
  explicit PlainName(const char* name) {
    const char* colon = strchr(name, ':');
    size_t n = 0;
    for (const char* c = colon != nullptr ? colon + 1 : name; *c != 0 && n + 1 < sizeof text; c++)
      if (*c != '_') text[n++] = *c;
  }
};

struct Sought {
  PlainName name;
  uint64_t buffer_addr;
};

// The same operation on the same buffer; a barrier has none.
int is_sought(const void* raw_slot, const void* raw_sought) {
  const auto& slot = *static_cast<const blackbox::CollectiveSlot*>(raw_slot);
  const auto& sought = *static_cast<const Sought*>(raw_sought);
  PlainName name(slot.name);
  // gloo has no reduce_scatter of its own: it reduces a copy (torch 2.13, ProcessGroupGloo.cpp).
  if (strncmp(name.text, "reducescatter", 13) == 0 && strncmp(sought.name.text, "allreduce", 9) == 0) return 1;
  if (strncmp(name.text, sought.name.text, strlen(sought.name.text)) != 0) return 0;
  return sought.buffer_addr == 0 || sought.buffer_addr == slot.buffer_addr || sought.buffer_addr == slot.output_addr;
}

// The number of the collective that this range belongs to: the one being dispatched here, or one that waits for a thread of
// the backend. 0 for operations inside of another collective, as in monitored_barrier.
uint64_t number_of(const at::RecordFunction& function) {
  Dispatched* dispatched = dispatched_here();
  if (dispatched != nullptr && !dispatched->taken) {
    dispatched->taken = true;
    return dispatched->number;
  }
  Sought sought{PlainName(function.name()), 0};
  each_tensor(function, [&](const at::Tensor& tensor) {
    if (sought.buffer_addr == 0) sought.buffer_addr = reinterpret_cast<uint64_t>(tensor.const_data_ptr());
  });
  return pytracer_start_scheduled_collective(is_sought, &sought);
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
  try {
    if (only_queues(function.name())) {
      if (Dispatched* dispatched = dispatched_here()) dispatched->taken = true;
      return nullptr;
    }
    auto range = std::make_unique<Range>();
    range->is_collective = is_collective(function.name());
    if (range->is_collective) {
      range->number = number_of(function);
      reached(range->number, CollectiveState::kStarted);
    } else {
      copy_name(range->range.name, function.name());
      range->range.sequence_nr = function.seqNr();
      note_stream(range->range);
      pytracer_record(static_cast<uint32_t>(RecordKind::kRangeBegin), &range->range, sizeof range->range);
      range->scope = scope_named(function.name());
      if (range->scope != 0) range->outer_scope = pytracer_scope(range->scope);
    }
    return range;
  } catch (...) {
    pytracer_count_hook_error();
    return nullptr;
  }
}

// A range may end on another thread than it began on, whose scope it must not change.
void leave(const Range& range) {
  uint32_t current = pytracer_scope(range.outer_scope);
  if (current != range.scope) pytracer_scope(current);
}

void on_end(const at::RecordFunction&, at::ObserverContext* context) {
  auto* range = static_cast<Range*>(context);
  if (range == nullptr) return;
  if (range->is_collective) {
    // gloo ends the range of a failed collective inside its catch block (ProcessGroupGloo.cpp, AsyncWork::execute).
    bool failed = std::current_exception() != nullptr;
    reached(range->number, failed ? CollectiveState::kFailed : CollectiveState::kCompleted);
    return;
  }
  if (range->scope != 0) leave(*range);
  pytracer_record(static_cast<uint32_t>(RecordKind::kRangeEnd), &range->range, sizeof range->range);
}

// Constructs in uninitialized memory; exceptions of torch's own constructor go to its caller.
void construct_watched(at::RecordFunction* function, at::RecordScope scope) {
  if (scope != at::RecordScope::USER_SCOPE) return construct(function, scope);  // our own call is not redirected
  was_called = true;
  if (state.load(std::memory_order_relaxed) != State::kWatched || !at::isRecordFunctionEnabled()) return construct(function, scope);
  at::StepCallbacks callbacks = at::getStepCallbacks(scope);
  callbacks.callbacks_.push_back({on_start, on_end});
  callbacks.needs_inputs_ = true;
  new (function) at::RecordFunction(std::move(callbacks));
}

// Tried where backends create their ranges, without running other callbacks.
bool torch_calls_ours() {
  at::DisableRecordFunctionGuard unseen;
  was_called = false;
  c10d::Work probe(-1, c10d::OpType::UNKNOWN, "pytracer");
  return was_called;
}

const GotPatch kPatch{reinterpret_cast<void*>(construct), reinterpret_cast<void*>(construct_watched)};

std::vector<GotPatch> patches(Level) { return {kPatch}; }

const char* install(Level level) {
  state.store(State::kReady, std::memory_order_release);
  if (level == Level::kOps) watch_ranges();
  return nullptr;
}

void uninstall() {
  changes.with([](Changes&) {
    if (state.exchange(State::kOff, std::memory_order_relaxed) == State::kWatchedGlobally) at::removeCallback(handle);
    patch_got({{kPatch.to, kPatch.from}});
  });
}

}  // namespace

void watch_ranges() {
  if (state.load(std::memory_order_relaxed) != State::kReady) return;  // called for each collective
  changes.with([](Changes&) {
    if (state.load(std::memory_order_relaxed) != State::kReady) return;
    if (torch_calls_ours()) return state.store(State::kWatched, std::memory_order_relaxed);
    handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end).needsInputs(true).scopes({at::RecordScope::USER_SCOPE}));
    state.store(State::kWatchedGlobally, std::memory_order_relaxed);
  });
}

const Hook kRanges{"ranges", install, uninstall, patches};

}  // namespace pytracer::hooks
