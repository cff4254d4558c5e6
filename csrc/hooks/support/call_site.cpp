#include "hooks/support/call_site.h"

#include "blackbox/layout.h"
#include "core/core.h"
#include "hooks/support/code_objects.h"
#include "hooks/support/intern.h"
#include "hooks/support/node_classes.h"
#include "hooks/support/python_frames.h"

#include <torch/csrc/autograd/function.h>  // node.h since torch 2.12

#include <pthread.h>
#include <atomic>
#include <new>

namespace pytracer::hooks {
namespace {

using blackbox::EntryKind;

constexpr int kDetailFrames = 64;
constexpr uint32_t kCacheSlots = 64;
constexpr uint32_t kStackPlaces = 12;
constexpr uint32_t kMostStacks = 4096;  // of at most 128 bytes: a quarter of the journal

InternMap<14> sites;   // hash -> SITE
InternMap<13> stacks;  // hash -> STACK
std::atomic<uint32_t> stack_count{0};

// What one thread keeps. Only a pointer is thread-local: static TLS of a loaded library is scarce.
struct Cache {
  PyThreadState* state = nullptr;  // the thread's own where it persists; otherwise looked up each time
  bool in_backward = true;         // a node began, and no query has returned none since
  struct Slot {
    uint64_t code;
    uint32_t generation, id;
  } slots[kCacheSlots] = {};
};
constinit thread_local Cache* t_cache __attribute__((tls_model("initial-exec"))) = nullptr;
pthread_key_t cache_key;
Cache no_cache;  // when memory is exhausted: shared and never filled, so slow but right

std::atomic<Cache*> lasting{nullptr};  // the one whose state is kept
bool finalize_is_hooked = false;       // Py_Finalize() calls python_ends

// The state that Py_Initialize() creates has the number 1 and lives until Py_Finalize(). Those of other threads may be deleted and
// created again at any time; in a child that another thread forked, it is gone, together with the cache's thread.
PyThreadState* lasting_state() {
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (!finalize_is_hooked || state == nullptr || PyThreadState_GetID(state) != 1) return nullptr;
  return PyThreadState_GetInterpreter(state) == PyInterpreterState_Main() ? state : nullptr;
}

void python_ends() {
  finalize_is_hooked = false;
  if (Cache* cache = lasting.exchange(nullptr)) cache->state = nullptr;
}

void free_cache(void* cache) {
  t_cache = nullptr;
  auto* mine = static_cast<Cache*>(cache);
  lasting.compare_exchange_strong(mine, nullptr);
  delete static_cast<Cache*>(cache);
}

__attribute__((noinline, cold)) Cache& make_cache() {
  auto* cache = new (std::nothrow) Cache;
  if (cache == nullptr) return no_cache;
  pthread_setspecific(cache_key, cache);
  torch::autograd::get_current_node();  // creates torch's thread-locals, which allocates
  cache->state = lasting_state();
  if (cache->state != nullptr) lasting.store(cache);
  t_cache = cache;
  return *cache;
}
inline Cache& cache() {
  Cache* mine = t_cache;
  return __builtin_expect(mine != nullptr, 1) ? *mine : make_cache();
}

__attribute__((noinline, cold)) uint32_t intern_and_keep(Cache& mine, Cache::Slot& slot, uint64_t code, uint32_t generation) {
  uint32_t id = intern_code(code);
  if (&mine != &no_cache) slot = {code, generation, id};
  return id;
}

inline uint32_t code_id(Cache& mine, uint64_t code) {
  uint32_t generation = code_generation.load(std::memory_order_acquire);
  auto& slot = mine.slots[(code >> 5 ^ code >> 11) % kCacheSlots];
  if (__builtin_expect(slot.code == code && slot.generation == generation, 1)) return slot.id;
  return intern_and_keep(mine, slot, code, generation);
}

// A thread's own frames do not move under it, with or without the GIL. Not gilstate.tstate_current: another thread's.
template <class Python>
inline uint64_t first_frame(const Cache& mine) {
  PyThreadState* state = mine.state;
  if (__builtin_expect(state == nullptr, 0)) {
    state = PyGILState_GetThisThreadState();
    if (state == nullptr) return 0;
  }
  return Python::first_frame(state);
}

template <class Python>
__attribute__((noinline, cold)) CallSite line_further_out(Cache& mine, uint64_t at) {
  Frame frame = Python::look_from(at);
  return frame ? CallSite{code_id(mine, frame.code) & kIdMask, frame.offset} : CallSite{0, 0};
}

template <class Python>
inline CallSite python_line(Cache& mine) {
  uint64_t at = first_frame<Python>(mine);
  if (__builtin_expect(at == 0, 0)) return {0, 0};
  Frame frame = Python::look(at);
  if (__builtin_expect(!frame, 0)) return line_further_out<Python>(mine, at);
  return {code_id(mine, frame.code) & kIdMask, frame.offset};
}

// The query costs 6 ns, so forward passes must not make it: after a backward pass it is made until the answer is "none".
inline decltype(torch::autograd::get_current_node()) running_node(Cache& mine) {  // a shared_ptr in torch 2.11
  if (!mine.in_backward) return {};
  auto node = torch::autograd::get_current_node();
  if (!node && &mine != &no_cache) mine.in_backward = false;
  return node;
}

uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9E3779B97F4A7C15ull ^ hash >> 29; }

// Apart from the forward pass, whose path through the caches must be short.
template <class Python>
__attribute__((noinline)) CallSite call_site_in_backward() noexcept {
  Cache& mine = cache();
  if (auto node = running_node(mine)) return {intern_node(*node), static_cast<uint32_t>(node->sequence_nr())};
  return python_line<Python>(mine);
}

template <class Python>
__attribute__((hot)) CallSite current() noexcept {
  Cache* mine = t_cache;
  if (__builtin_expect(mine == nullptr || mine->in_backward, 0)) return call_site_in_backward<Python>();
  return python_line<Python>(*mine);
}

template <class Python>
CallSite detailed() noexcept {
  Cache& mine = cache();
  blackbox::SiteEntry site{};
  uint64_t at = first_frame<Python>(mine);
  if (Frame frame = Python::look_from(at)) {
    uint32_t id = code_id(mine, frame.code);
    site.code_id = id & kIdMask;
    site.code_offset = frame.offset;
    for (int i = 0; i < kDetailFrames && (id & kInLibrary) != 0 && (at = Python::next_frame(at)) != 0; i++) {
      frame = Python::look_outwards(at);
      if (!frame) continue;
      id = code_id(mine, frame.code);
      if (id != 0 && (id & kInLibrary) == 0) {
        site.caller_id = id;
        site.caller_offset = frame.offset;
      }
    }
  }
  uint32_t sequence_nr = ~0u;
  if (auto node = torch::autograd::get_current_node()) {
    site.node_id = intern_node(*node);
    sequence_nr = static_cast<uint32_t>(node->sequence_nr());
  }
  uint64_t hash =
      mix(mix(mix(1, static_cast<uint64_t>(site.code_id) << 32 | site.code_offset), static_cast<uint64_t>(site.caller_id) << 32 | site.caller_offset),
          site.node_id);
  hash |= 1ull << 63;
  uint32_t id = sites.find(hash);
  if (id == 0) {
    id = pytracer_journal(static_cast<uint32_t>(EntryKind::kSite), &site, sizeof site);
    if (id != 0) sites.add(hash, id);
  }
  return {id, sequence_nr};
}

template <class Python>
CallSite with_stack() noexcept {
  if (stack_count.load(std::memory_order_relaxed) >= kMostStacks) return detailed<Python>();
  Cache& mine = cache();
  struct {
    blackbox::StackEntry head;
    blackbox::StackPlace places[kStackPlaces];
  } stack{};
  uint64_t hash = 1, at = first_frame<Python>(mine);
  for (; at != 0 && stack.head.count < kStackPlaces; at = Python::next_frame(at)) {
    Frame frame = Python::look_outwards(at);
    if (!frame) continue;
    uint32_t id = code_id(mine, frame.code) & kIdMask;
    stack.places[stack.head.count++] = {id, frame.offset};
    hash = mix(hash, static_cast<uint64_t>(id) << 32 | frame.offset);
  }
  uint32_t sequence_nr = ~0u;
  if (auto node = running_node(mine)) {
    stack.head.node_id = intern_node(*node);
    sequence_nr = static_cast<uint32_t>(node->sequence_nr());
  }
  if (stack.head.count == 0 && stack.head.node_id == 0) return {0, 0};
  hash = mix(hash, stack.head.node_id) | 1ull << 63;
  uint32_t id = stacks.find(hash);
  if (id == 0) {
    id = pytracer_journal(static_cast<uint32_t>(EntryKind::kStack), &stack, sizeof stack.head + stack.head.count * sizeof stack.places[0]);
    if (id != 0 && stacks.add(hash, id)) stack_count.fetch_add(1, std::memory_order_relaxed);
  }
  return {id, sequence_nr};
}

template <class Python>
constexpr CallSites kCallSites{current<Python>, detailed<Python>, with_stack<Python>};

CallSites call_sites_of(int minor) {
  switch (minor) {
    case 10: return kCallSites<Interpreter<10>>;
    case 11: return kCallSites<Interpreter<11>>;
    case 12: return kCallSites<Interpreter<12>>;
    case 13: return kCallSites<Interpreter<13>>;
    case 14: return kCallSites<Interpreter<14>>;
    default: return kCallSites<Interpreter<0>>;
  }
}

}  // namespace

CallSites call_sites = kCallSites<Interpreter<0>>;

void prepare_call_sites(const std::vector<std::string>& directories) {
  const auto* offsets = static_cast<const crashsafe::PythonOffsets*>(pytracer_python_offsets());
  static bool prepared = false;
  if (!prepared) {
    prepared = true;
    pthread_key_create(&cache_key, free_cache);
    finalize_is_hooked = Py_AtExit(python_ends) == 0;
  }
  if (offsets != nullptr) follow_code_objects(directories, *offsets);
  call_sites = call_sites_of(offsets != nullptr ? offsets->minor : 0);
}

bool has_torch_thread_locals() noexcept { return t_cache != nullptr; }

void node_begins() noexcept {
  if (Cache* mine = t_cache) mine->in_backward = true;
}

}  // namespace pytracer::hooks
