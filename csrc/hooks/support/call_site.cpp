#include "hooks/support/call_site.h"

#include "core/core.h"
#include "core/file/journal.h"
#include "crashsafe/python/python_stack.h"
#include "hooks/support/intern.h"

#include <torch/csrc/autograd/function.h>  // node.h since torch 2.12
#include <torch/csrc/autograd/python_function.h>

#include <pthread.h>
#include <algorithm>
#include <cstring>
#include <new>
#include <typeinfo>

namespace pytracer::hooks {
namespace {

using blackbox::EntryKind;

// This extension is built for one CPython: its offsets are constants in the code, not one more line of data to fetch.
constexpr crashsafe::PythonOffsets kRows[] = {
#include "crashsafe/python/python_offsets.inc"
};
consteval crashsafe::PythonOffsets row_of(int minor) {
  for (const auto& row : kRows)
    if (row.minor == minor) return row;
  return {};
}
constexpr crashsafe::PythonOffsets kPython = row_of(PY_MINOR_VERSION);

constexpr uint32_t kIdMask = 0x7fffffff, kInLibrary = 0x80000000;  // an id with the flag: its file belongs to torch or to us
constexpr int kDetailFrames = 64;
constexpr uint32_t kCacheSlots = 64;
constexpr size_t kLongestTable = 8192;
constexpr uint32_t kStackPlaces = 12;
constexpr uint32_t kMostStacks = 4096;  // of at most 128 bytes: a quarter of the journal

InternMap<15> codes;   // PyCodeObject* -> CODE
InternMap<12> nodes;   // vtable, or Python class -> NODE
InternMap<14> sites;   // hash -> SITE
InternMap<13> stacks;  // hash -> STACK
std::atomic<uint32_t> stack_count{0};
bool frames_are_trusted = false;
std::vector<std::string> library_directories;
std::atomic<uint32_t> code_generation{1};  // moves when a code object dies: per-thread caches expire
std::atomic<uint64_t> py_node_vtable{0};
destructor original_code_dealloc = nullptr;

// What one thread keeps. Only a pointer is thread-local: static TLS of a loaded library is scarce.
struct Cache {
  PyThreadState* state = nullptr;  // the thread's own where it lasts, else to be asked for
  bool in_backward = true;         // a node began, and none was seen to be missing since
  struct Slot {
    uint64_t code;
    uint32_t generation, id;
  } slots[kCacheSlots] = {};
};
constinit thread_local Cache* t_cache __attribute__((tls_model("initial-exec"))) = nullptr;
pthread_key_t cache_key;
Cache no_cache;  // when memory is out: shared, slow, still right because slots are compared by generation 0

std::atomic<Cache*> lasting{nullptr};  // whose state is kept
bool end_is_told = false;              // by Py_Finalize()

// The state that Py_Initialize() made has the number 1 and lives until Py_Finalize(). Those of other threads may be deleted and made
// again at any time; and in a child that another thread forked, it is gone, together with the cache's thread.
PyThreadState* lasting_state() {
  PyThreadState* state = PyGILState_GetThisThreadState();
  if (!end_is_told || !frames_are_trusted || state == nullptr || PyThreadState_GetID(state) != 1) return nullptr;
  return PyThreadState_GetInterpreter(state) == PyInterpreterState_Main() ? state : nullptr;
}

void python_ends() {
  end_is_told = false;
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
  torch::autograd::get_current_node();  // makes torch's thread-locals, which allocates
  cache->state = lasting_state();
  if (cache->state != nullptr) lasting.store(cache);
  t_cache = cache;
  return *cache;
}
inline Cache& cache() {
  Cache* mine = t_cache;
  return __builtin_expect(mine != nullptr, 1) ? *mine : make_cache();
}

// A code object's address is its key only while it lives: of 300 regenerated functions 237 had distinct addresses.
void code_dealloc(PyObject* object) {
  if (codes.retire(reinterpret_cast<uint64_t>(object))) code_generation.fetch_add(1, std::memory_order_release);
  original_code_dealloc(object);
}

struct TextView {
  const void* data;
  uint32_t nbytes;
  uint8_t kind;
};
TextView view(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return {"?", 1, 1};
  auto kind = static_cast<uint8_t>(PyUnicode_KIND(text));
  return {PyUnicode_DATA(text), static_cast<uint32_t>(PyUnicode_GET_LENGTH(text)) * kind, kind};
}

bool starts_with(const TextView& text, const std::string& prefix) {
  return text.kind == 1 && !prefix.empty() && text.nbytes >= prefix.size() && memcmp(text.data, prefix.data(), prefix.size()) == 0;
}

// No reference is kept and no GIL needed: the running frame holds the code, and its strings do not change.
__attribute__((noinline, cold)) uint32_t intern_code(PyCodeObject* code) {
  auto key = reinterpret_cast<uint64_t>(code);
  if (uint32_t id = codes.find(key)) return id;
#if PY_VERSION_HEX >= 0x030B0000
  TextView name = view(code->co_qualname);
#else
  TextView name = view(code->co_name);
#endif
  TextView file = view(code->co_filename);
  PyObject* table = code->co_linetable;
  uint32_t table_nbytes = PyBytes_Check(table) ? static_cast<uint32_t>(PyBytes_GET_SIZE(table)) : 0;
  if (table_nbytes > kLongestTable) table_nbytes = kLongestTable;
  bool in_library = std::any_of(library_directories.begin(), library_directories.end(), [&](const std::string& d) { return starts_with(file, d); });
  blackbox::CodeEntry entry{code->co_firstlineno, PY_MINOR_VERSION, name.kind, file.kind, name.nbytes, file.nbytes, table_nbytes, in_library};
  recorder::Piece pieces[] = {
      {&entry, sizeof entry}, {name.data, name.nbytes}, {file.data, file.nbytes}, {table_nbytes != 0 ? PyBytes_AS_STRING(table) : "", table_nbytes}};
  std::string bytes;
  for (const auto& piece : pieces) bytes.append(static_cast<const char*>(piece.data), piece.nbytes);
  uint32_t id = pytracer_journal(static_cast<uint32_t>(EntryKind::kCode), bytes.data(), bytes.size());
  if (id == 0) return 0;
  id |= in_library ? kInLibrary : 0;
  codes.add(key, id);
  return id;
}

__attribute__((noinline, cold)) uint32_t intern_and_keep(Cache& mine, Cache::Slot& slot, uint64_t code, uint32_t generation) {
  uint32_t id = intern_code(reinterpret_cast<PyCodeObject*>(code));
  if (&mine != &no_cache) slot = {code, generation, id};
  return id;
}

inline uint32_t code_id(Cache& mine, uint64_t code) {
  uint32_t generation = code_generation.load(std::memory_order_acquire);
  auto& slot = mine.slots[(code >> 5 ^ code >> 11) % kCacheSlots];
  if (__builtin_expect(slot.code == code && slot.generation == generation, 1)) return slot.id;
  return intern_and_keep(mine, slot, code, generation);
}

// A running line of Python.
struct Frame {
  uint64_t code = 0;
  uint32_t offset = 0;
  explicit operator bool() const { return code != 0; }
};

template <class T>
inline T load(uint64_t base, long offset) {
  T value;
  memcpy(&value, reinterpret_cast<const char*>(base) + offset, sizeof value);
  return value;
}

// A thread's own frames do not move under it, with or without the GIL. Not gilstate.tstate_current: another thread's.
inline uint64_t first_frame(const Cache& mine) {
  auto state = reinterpret_cast<uint64_t>(mine.state);
  if (__builtin_expect(state == 0, 0)) {
    state = reinterpret_cast<uint64_t>(PyGILState_GetThisThreadState());
    if (state == 0 || !frames_are_trusted) return 0;
  }
  auto frame = load<uint64_t>(state, kPython.ts_frame);
  return kPython.cframe_frame >= 0 && frame != 0 ? load<uint64_t>(frame, kPython.cframe_frame) : frame;
}
inline uint64_t next_frame(uint64_t frame) { return load<uint64_t>(frame, kPython.f_back); }

// None for frames without Python code.
inline Frame look(uint64_t frame) {
  auto code = load<uint64_t>(frame, kPython.f_code) & ~1ull;
  if (code == 0) return {};
#if PY_VERSION_HEX >= 0x030C0000
  if (load<char>(frame, kPython.f_owner) == kPython.owner_cstack) return {};
#endif
#if PY_VERSION_HEX >= 0x030D0000
  if (!PyCode_Check(reinterpret_cast<PyObject*>(code))) return {};
#endif
#if PY_VERSION_HEX >= 0x030B0000
  return {code, static_cast<uint32_t>(load<uint64_t>(frame, kPython.f_instr) - (code + static_cast<uint64_t>(kPython.co_code)))};
#else
  return {code, static_cast<uint32_t>(load<int32_t>(frame, kPython.f_instr)) * 2};
#endif
}

// From there outwards; `at` becomes where it was found, or 0.
Frame look_from(uint64_t& at) {
  for (; at != 0; at = next_frame(at))
    if (Frame frame = look(at)) return frame;
  return {};
}

__attribute__((noinline, cold)) Who line_further_out(Cache& mine, uint64_t at) {
  Frame frame = look_from(at);
  return frame ? Who{code_id(mine, frame.code) & kIdMask, frame.offset} : Who{0, 0};
}

inline Who python_line(Cache& mine) {
  uint64_t at = first_frame(mine);
  if (__builtin_expect(at == 0, 0)) return {0, 0};
  Frame frame = look(at);
  if (__builtin_expect(!frame, 0)) return line_further_out(mine, at);
  return {code_id(mine, frame.code) & kIdMask, frame.offset};
}

uint64_t vtable_of(const torch::autograd::Node& node) { return load<uint64_t>(reinterpret_cast<uint64_t>(&node), 0); }

// The member was `obj` until 2.12 and is behind pyobj() since.
template <class N>
PyObject* python_object(const N& node) {
  if constexpr (requires { node.pyobj(); })
    return node.pyobj();
  else
    return node.obj;
}

// Python's classes share one vtable, under which there is nothing.
uint32_t intern_node(const torch::autograd::Node& node) {
  uint64_t key = vtable_of(node);
  if (uint32_t id = nodes.find(key)) return id;
  bool is_python = false;
  const char* name = node_class(node, is_python);
  if (is_python) {
    key = reinterpret_cast<uint64_t>(name);  // tp_name lives as long as its class
    if (uint32_t id = nodes.find(key)) return id;
  }
  uint32_t id = pytracer_journal(static_cast<uint32_t>(EntryKind::kNode), name, strlen(name));
  if (id != 0) nodes.add(key, id);
  return id;
}

// Asking costs 6 ns, so forward passes must not: the first answer "none" after a backward pass is the last question.
inline decltype(torch::autograd::get_current_node()) running_node(Cache& mine) {  // a shared_ptr in torch 2.11
  if (!mine.in_backward) return {};
  auto node = torch::autograd::get_current_node();
  if (!node && &mine != &no_cache) mine.in_backward = false;
  return node;
}

uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x9E3779B97F4A7C15ull ^ hash >> 29; }

}  // namespace

const char* node_class(const torch::autograd::Node& node, bool& is_python) noexcept {
  const char* name = typeid(node).name();
  uint64_t vtable = vtable_of(node);
  uint64_t known = py_node_vtable.load(std::memory_order_relaxed);
  if (known == 0 && strcmp(name, "N5torch8autograd6PyNodeE") == 0) py_node_vtable.store(known = vtable, std::memory_order_relaxed);
  is_python = vtable == known;
  if (!is_python) return name;
  PyObject* object = python_object(static_cast<const torch::autograd::PyNode&>(node));
  return object != nullptr ? Py_TYPE(object)->tp_name : "PyNode";
}

void prepare_who(const std::vector<std::string>& directories) {
  library_directories = directories;
  auto* offsets = static_cast<const crashsafe::PythonOffsets*>(pytracer_python_offsets());
  frames_are_trusted = offsets != nullptr && offsets->minor == kPython.minor;
  if (original_code_dealloc != nullptr) return;
  pthread_key_create(&cache_key, free_cache);
  end_is_told = Py_AtExit(python_ends) == 0;
  original_code_dealloc = PyCode_Type.tp_dealloc;
  PyCode_Type.tp_dealloc = code_dealloc;
}

bool can_ask_for_node() noexcept { return t_cache != nullptr; }

void node_begins() noexcept {
  if (Cache* mine = t_cache) mine->in_backward = true;
}

// Apart from the forward pass, whose path through the caches must be short.
__attribute__((noinline)) static Who who_in_backward() noexcept {
  Cache& mine = cache();
  if (auto node = running_node(mine)) return {intern_node(*node), static_cast<uint32_t>(node->sequence_nr())};
  return python_line(mine);
}

__attribute__((hot)) Who who_is_running() noexcept {
  Cache* mine = t_cache;
  if (__builtin_expect(mine == nullptr || mine->in_backward, 0)) return who_in_backward();
  return python_line(*mine);
}

Who who_is_running_in_detail() noexcept {
  Cache& mine = cache();
  blackbox::SiteEntry site{};
  uint64_t at = first_frame(mine);
  if (Frame frame = look_from(at)) {
    uint32_t id = code_id(mine, frame.code);
    site.code_id = id & kIdMask;
    site.code_offset = frame.offset;
    for (int i = 0; i < kDetailFrames && (id & kInLibrary) != 0 && (at = next_frame(at)) != 0; i++) {
      frame = look(at);
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

Who who_is_running_with_stack() noexcept {
  if (stack_count.load(std::memory_order_relaxed) >= kMostStacks) return who_is_running_in_detail();
  Cache& mine = cache();
  struct {
    blackbox::StackEntry head;
    blackbox::StackPlace places[kStackPlaces];
  } stack{};
  uint64_t hash = 1, at = first_frame(mine);
  for (; at != 0 && stack.head.count < kStackPlaces; at = next_frame(at)) {
    Frame frame = look(at);
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

}  // namespace pytracer::hooks
