#include "crashsafe/memory/referrers.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/memory/reference_path.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/python/arrays.h"
#include "crashsafe/python/python_objects.h"
#include "crashsafe/torch/saved_tensors.h"
#include "crashsafe/torch/torch_objects.h"

#include <cstring>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint32_t kLocals = 256, kItems = 64, kAttributes = 192, kGlobals = 4096, kModules = 32, kTypes = 64, kObjects = 60'000, kClasses = 64;
constexpr uint32_t kMostNumbers = 128, kNumberFrames = 8, kNumberItems = 8, kMostArrays = 16, kNoIndex = ~0u;
constexpr uint32_t kLongestText = 160, kLeastRoom = 4096, kSavedShare = 4, kMostEmpty = 64;

uint64_t running_node = 0;

// Static: too large for the alternate stack. One thread reports at a time.
struct Search {
  ReferencePath path;
  uint32_t frame, looked_at, kind;
  bool graph;   // tensors found now are where the walk of the graph begins
  bool counts;  // whole numbers are kept as well: of the crashed thread's innermost frames
  uint32_t numbers, arrays;
  uint32_t empty;  // tensors without memory that were kept
  uint64_t modules[kModules];
  uint32_t module_count;
  struct {
    uint64_t type;
    bool tensor, looked, array;
  } types[kTypes];
  struct {
    uint64_t key;
    uint32_t text, nbytes;
  } classes[kClasses];
  uint32_t class_count;
};
PYTRACER_LARGE constinit Search search{};

Holder* next_referrer(uint32_t reserved) {
  CrashHeader& crash = *g_box.crash.data;
  if (crash.holder_count + reserved >= g_box.referrers.items || g_box.arena.items - crash.arena_used < kLeastRoom) {
    crash.holders_truncated = 1;
    return nullptr;
  }
  return &g_box.referrers.data[crash.holder_count];
}

auto& known_type(uint64_t type) {
  auto& slot = search.types[(type >> 4 ^ type >> 10) % kTypes];
  if (slot.type != type) slot = {type, derives_from(type, torch_offsets()->tensor_type), false, false};
  return slot;
}

// Only where arrays are kept: it reads names.
bool is_array(uint64_t type) {
  auto& slot = known_type(type);
  if (!slot.looked) slot.array = is_array_type(type);
  slot.looked = true;
  return slot.array;
}

uint32_t saturated(uint64_t value) { return value < UINT32_MAX ? static_cast<uint32_t>(value) : UINT32_MAX; }

// A tensor without memory is kept as well: what is given its data pointer is given null.
void keep(uint64_t object) {
  TensorView tensor{};
  if (!look_at_tensor(object, tensor)) return;
  if (search.graph && tensor.meta != 0) add_to_graph(word_at(tensor.meta + torch_offsets()->meta_function));
  if (tensor.base == 0 && search.empty++ >= kMostEmpty) return;
  Holder* holder = next_referrer(g_box.referrers.items / kSavedShare);
  if (holder == nullptr) return;
  CrashHeader& crash = *g_box.crash.data;
  *holder = {search.kind,
             search.frame,
             tensor.base,
             object,
             crash.arena_used,
             0,
             tensor.offset == 0 ? tensor.base : 0,
             saturated(tensor.offset),
             saturated(tensor.numel)};
  holder->text_nbytes = search.path.write(g_box.arena.data + crash.arena_used, kLongestText);
  crash.arena_used += holder->text_nbytes;
  crash.holder_count++;
}

// A number under the expression by which Python has it: the path and what follows it, with an index.
bool write_number(uint64_t object, uint64_t value, const char* behind = "", uint32_t index = kNoIndex) {
  Holder* holder = next_referrer(g_box.referrers.items / kSavedShare);
  if (holder == nullptr) return false;
  CrashHeader& crash = *g_box.crash.data;
  *holder = {static_cast<uint32_t>(HolderKind::kNumber), search.frame, 0, object, crash.arena_used, 0, value, 0, 0};
  char* text = g_box.arena.data + crash.arena_used;
  uint32_t nbytes = search.path.write(text, kLongestText);
  for (; *behind != 0 && nbytes < kLongestText; behind++) text[nbytes++] = *behind;
  if (index != kNoIndex && nbytes + 3 <= kLongestText) {
    text[nbytes++] = '[';
    text[nbytes++] = static_cast<char>('0' + index);
    text[nbytes++] = ']';
  }
  holder->text_nbytes = nbytes;
  crash.arena_used += nbytes;
  crash.holder_count++;
  return true;
}

// What a line passes to native code is as often a number as a tensor.
void keep_number(uint64_t object) {
  int64_t value = 0;
  if (!search.counts || search.numbers >= kMostNumbers || !whole_number(object, value)) return;
  if (write_number(object, static_cast<uint64_t>(value))) search.numbers++;
}

// Or an array of NumPy: where it begins, what it is made of, and how far its elements lie apart.
void keep_array(uint64_t object) {
  ArrayView array{};
  if (!search.counts || search.arrays >= kMostArrays || !look_at_array(object, array)) return;
  search.arrays++;
  if (!write_number(object, array.data, ".ctypes.data") || !write_number(object, static_cast<uint64_t>(array.type_number), ".dtype.num")) return;
  for (uint32_t i = 0; i < array.dimensions && i < ArrayView::kMost; i++)
    if (!write_number(object, static_cast<uint64_t>(array.shape[i]), ".shape", i) ||
        !write_number(object, static_cast<uint64_t>(array.strides[i]), ".strides", i))
      return;
}

void look_into(uint64_t object);

void look_down(ReferencePath::Kind kind, uint64_t what, uint64_t object) {
  search.path.push(kind, what);
  look_into(object);
  search.path.pop();
}

void look_at_entries(const Table& table, uint64_t limit, ReferencePath::Kind kind) {
  uint64_t key = 0, value = 0;
  for (uint64_t i = 0; i < table.count && i < limit; i++)
    if (entry_of(table, i, key, value)) look_down(kind, key, value);
}

// A tensor, or an object that may refer to one. Classes, modules and functions are left out: they refer to everything.
void look_into(uint64_t object) {
  if (++search.looked_at > kObjects) {
    g_box.crash.data->holders_truncated = 1;
    return;
  }
  uint64_t type = type_of(object), first = 0, count = 0;
  const PythonTypes& types = python_types();
  if (type == types.integer) return keep_number(object);
  if (type == 0 || type == types.text) return;
  if (known_type(type).tensor) return keep(object);
  if (search.counts && is_array(type)) return keep_array(object);
  if (search.path.full() || type == types.type || type == types.module) return;
  Table table{};
  if (items_of(object, first, count)) {
    bool counts = search.counts;
    for (uint64_t i = 0; i < count && i < kItems; i++) {
      search.counts = counts && i < kNumberItems;
      look_down(ReferencePath::kIndex, i, word_at(first + i * sizeof(uint64_t)));
    }
    search.counts = counts;
  } else if (type == types.dict) {
    if (table_of_dict(object, table)) look_at_entries(table, kItems, ReferencePath::kKey);
  } else if (search.path.outermost() && table_of_attributes(object, type, table)) {
    look_at_entries(table, kAttributes, ReferencePath::kAttribute);
  }
}

void look_at_globals(uint64_t globals, HolderKind kind) {
  for (uint32_t i = 0; i < search.module_count; i++)
    if (search.modules[i] == globals) return;
  if (globals == 0 || search.module_count == kModules) return;
  search.modules[search.module_count++] = globals;
  Table table{};
  uint64_t key = 0, value = 0;
  search.kind = static_cast<uint32_t>(kind);
  if (type_of(globals) != python_types().dict || !table_of_dict(globals, table)) return;
  for (uint64_t i = 0; i < table.count && i < kGlobals; i++)
    if (entry_of(table, i, key, value)) {
      search.path.begin(key);
      look_into(value);
    }
}

uint64_t globals_of(const PythonFrame& frame) { return word_at(frame.frame + static_cast<uint64_t>(python_objects()->f_globals)); }

// The variables of a module's own frame are in the dict of its globals; those of a module whose functions run are looked at with theirs.
bool look_at_module(uint32_t first) {
  const PythonFrame& frame = g_box.python_frames.data[search.frame];
  if (!code_is_named(frame.code, "<module>")) return false;
  uint64_t globals = globals_of(frame);
  for (uint32_t i = first; i < search.frame; i++)
    if (globals_of(g_box.python_frames.data[i]) == globals) return true;
  look_at_globals(globals, HolderKind::kLocal);
  return true;
}

void look_at_locals(const PythonFrame& frame) {
  uint64_t name = 0, value = 0;
  bool in_cell = false;
  for (uint32_t i = 0; i < kLocals && local_of(frame.frame, frame.code, i, name, value, in_cell); i++) {
    search.kind = static_cast<uint32_t>(in_cell ? HolderKind::kCell : HolderKind::kLocal);
    search.path.begin(name);
    if (value != 0) look_into(value);
  }
}

// Class of a node, once per class: vtable -> type_info -> mangled name, or tp_name. AccumulateGrad keeps the parameter itself, which was
// not saved.
const char kAccumulates[] = "N5torch8autograd14AccumulateGradE";
bool class_of(const Saved& saved, uint32_t& text, uint32_t& nbytes) {
  uint64_t vtable = word_at(saved.node), key = saved.python_type != 0 ? saved.python_type : vtable;
  for (uint32_t i = 0; i < search.class_count; i++)
    if (search.classes[i].key == key) {
      text = search.classes[i].text;
      nbytes = search.classes[i].nbytes;
      return nbytes != 0;
    }
  CrashHeader& crash = *g_box.crash.data;
  uint64_t name = saved.python_type != 0 ? word_at(key + static_cast<uint64_t>(python_objects()->type_name)) : word_at(word_at(vtable - 8) + 8);
  if (search.class_count == kClasses || g_box.arena.items - crash.arena_used < kLeastRoom) return false;
  char* to = g_box.arena.data + crash.arena_used;
  nbytes = 0;
  while (nbytes < kLongestText && read_bytes(to + nbytes, name + nbytes, 1) && to[nbytes] != 0) nbytes++;
  if (nbytes + 1 == sizeof kAccumulates && memcmp(to, kAccumulates, nbytes) == 0) nbytes = 0;
  text = crash.arena_used;
  crash.arena_used += nbytes;
  search.classes[search.class_count++] = {key, text, nbytes};
  return nbytes != 0;
}

bool keep_saved(const Saved& saved) {
  uint32_t text = 0, nbytes = 0;
  if (!class_of(saved, text, nbytes)) return true;
  Holder* holder = next_referrer(0);
  if (holder == nullptr) return false;
  *holder = {static_cast<uint32_t>(HolderKind::kSaved), saved.python_type != 0, saved.base, saved.node, text, nbytes, 0, saved.distance, 0};
  g_box.crash.data->holder_count++;
  return true;
}

}  // namespace

void set_running_node(uint64_t node) noexcept { running_node = node; }

void write_referrers() noexcept {
  if (torch_offsets() == nullptr || python_objects() == nullptr) return;
  CrashHeader& crash = *g_box.crash.data;
  memset(static_cast<void*>(&search), 0, sizeof search);
  begin_graph();
  add_to_graph(running_node);
  uint32_t own = crash.python_matched != 0 && crash.python_thread_count > 0 ? g_box.python_threads.data[0].frame_count : 0;
  uint32_t frames = crash.python_frame_count;
  const uint32_t begins[] = {0, own};
  for (uint32_t first : begins) {  // the crashed thread's frames and globals first
    uint32_t end = first == 0 && own != 0 ? own : frames;
    search.graph = first == 0 || own == 0;
    for (search.frame = first; search.frame < end; search.frame++) {
      search.counts = torch_offsets()->values && search.graph && search.frame - first < kNumberFrames;
      if (!look_at_module(first)) look_at_locals(g_box.python_frames.data[search.frame]);
    }
    search.counts = false;
    for (search.frame = first; search.frame < end; search.frame++)
      look_at_globals(globals_of(g_box.python_frames.data[search.frame]), HolderKind::kGlobal);
    if (own == 0) break;
  }
  walk_graph(keep_saved);
}

}  // namespace pytracer::crashsafe
