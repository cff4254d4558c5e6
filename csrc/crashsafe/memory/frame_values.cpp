#include "crashsafe/memory/frame_values.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/memory/reference_path.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/python/python_objects.h"
#include "crashsafe/torch/torch_objects.h"

#include <cstring>
#include <string_view>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint32_t kFrames = 16, kLocals = 128, kItems = 8, kEntries = 32, kAttributes = 96, kGlobals = 512, kObjects = 8192;
constexpr uint32_t kMostValues = 448, kMostDeep = 96, kLongestText = 120, kLongestFile = 512, kArenaShare = 4;

// Static: too large for the alternate stack. One thread reports at a time.
struct Walk {
  ReferencePath path;
  uint32_t frame, looked_at, room;
  bool deep;  // the second walk: what is below an attribute of a variable's object, if there is room
  char file[kLongestFile];
};
PYTRACER_LARGE constinit Walk walk{};

void write(HolderKind kind, uint64_t object, uint64_t value, LengthOf of = LengthOf::kNone) {
  CrashHeader& crash = *g_box.crash.data;
  if (walk.deep != walk.path.below_attribute()) return;
  uint32_t share = g_box.arena.items / kArenaShare;
  if (walk.room == 0 || crash.holder_count >= g_box.referrers.items || crash.arena_used + kLongestText > g_box.arena.items - share) {
    crash.holders_truncated = 1;
    return;
  }
  walk.room--;
  Holder& holder = g_box.referrers.data[crash.holder_count++];
  holder = {static_cast<uint32_t>(kind), walk.frame, 0, object, crash.arena_used, 0, value, static_cast<uint32_t>(of), 0};
  holder.text_nbytes = walk.path.write(g_box.arena.data + crash.arena_used, kLongestText);
  crash.arena_used += holder.text_nbytes;
}

// False for what is none of these.
bool write_plain(uint64_t object, uint64_t type) {
  const PythonTypes& types = python_types();
  int64_t whole = 0;
  if (object == types.nothing) {
    write(HolderKind::kNothing, object, 0);
  } else if (type == types.real) {
    write(HolderKind::kReal, object, bits_of_real(object));
  } else if (type == types.integer || type == types.truth) {
    if (whole_number(object, whole)) write(type == types.truth ? HolderKind::kTruth : HolderKind::kWhole, object, static_cast<uint64_t>(whole));
  } else {
    return false;
  }
  return true;
}

// `_parameters`, `__doc__`: what a class keeps for itself.
bool is_private(uint64_t name) {
  PythonText text{};
  char first = '_';
  return !python_text(name, text) || !read_bytes(&first, text.data, 1) || first == '_';
}

void look_into(uint64_t object);

void look_down(ReferencePath::Kind kind, uint64_t what, uint64_t object) {
  walk.path.push(kind, what);
  look_into(object);
  walk.path.pop();
}

void look_at_items(uint64_t first, uint64_t count) {
  for (uint64_t i = 0; i < count && i < kItems; i++) look_down(ReferencePath::kIndex, i, word_at(first + i * sizeof(uint64_t)));
}

void look_at_entries(const Table& table, uint64_t limit, ReferencePath::Kind kind) {
  uint64_t key = 0, value = 0;
  for (uint64_t i = 0; i < table.count && i < limit; i++)
    if (entry_of(table, i, key, value) && (kind == ReferencePath::kKey || !is_private(key))) look_down(kind, key, value);
}

// Classes, modules and functions are left out: they refer to everything.
void look_into(uint64_t object) {
  if (++walk.looked_at > kObjects) return;
  const PythonTypes& types = python_types();
  uint64_t type = type_of(object), first = 0, count = 0;
  if (type == 0 || type == types.text || type == types.type || type == types.module || write_plain(object, type)) return;
  Table table{};
  if (items_of(object, first, count)) {
    write(HolderKind::kLength, object, count, type == types.list ? LengthOf::kList : LengthOf::kTuple);
    if (!walk.path.full()) look_at_items(first, count);
  } else if (type == types.dict) {
    write(HolderKind::kLength, object, length_of_dict(object), LengthOf::kDict);
    if (!walk.path.full() && table_of_dict(object, table)) look_at_entries(table, kEntries, ReferencePath::kKey);
  } else if (walk.path.outermost() || (walk.deep && !walk.path.full())) {
    if (table_of_attributes(object, type, table)) look_at_entries(table, kAttributes, ReferencePath::kAttribute);
  }
}

// By the path, as the reader knows them better: pytracer/_library_files.py.
bool is_library(const PythonFrame& frame) {
  uint32_t nbytes = frame.file_nbytes < kLongestFile ? frame.file_nbytes : kLongestFile;
  if (frame.file + nbytes > g_box.arena.items) return true;
  memcpy(walk.file, g_box.arena.data + frame.file, nbytes);
  std::string_view file{walk.file, nbytes};
  size_t python = file.find("/lib/python3."), packages = file.find("-packages/");
  if (packages == file.npos) return python != file.npos || file.starts_with("<frozen");
  std::string_view package{file.data() + packages, file.size() - packages};
  return package.starts_with("-packages/torch/") || package.starts_with("-packages/pytracer/");
}

void look_at_variables(const PythonFrame& frame) {
  uint64_t name = 0, value = 0;
  bool in_cell = false;
  Table table{};
  if (code_is_named(frame.code, "<module>")) {  // they are its globals
    uint64_t globals = word_at(frame.frame + static_cast<uint64_t>(python_objects()->f_globals));
    if (type_of(globals) != python_types().dict || !table_of_dict(globals, table)) return;
    for (uint64_t i = 0; i < table.count && i < kGlobals; i++)
      if (entry_of(table, i, name, value) && !is_private(name)) {
        walk.path.begin(name);
        look_into(value);
      }
    return;
  }
  for (uint32_t i = 0; i < kLocals && local_of(frame.frame, frame.code, i, name, value, in_cell); i++)
    if (value != 0) {
      walk.path.begin(name);
      look_into(value);
    }
}

void look_at_frames(bool deep) {
  const CrashHeader& crash = *g_box.crash.data;
  uint32_t frames = crash.python_matched != 0 && crash.python_thread_count > 0 ? g_box.python_threads.data[0].frame_count : 0, own = 0;
  walk.deep = deep;
  walk.room = deep ? kMostDeep : kMostValues - kMostDeep;
  walk.looked_at = 0;
  for (walk.frame = 0; walk.frame < frames && own < kFrames; walk.frame++) {
    const PythonFrame& frame = g_box.python_frames.data[walk.frame];
    if (is_library(frame)) continue;
    own++;
    look_at_variables(frame);
  }
}

}  // namespace

void write_values() noexcept {
  if (torch_offsets() == nullptr || python_objects() == nullptr || !torch_offsets()->values) return;
  memset(static_cast<void*>(&walk), 0, sizeof walk);
  look_at_frames(false);
  look_at_frames(true);
}

}  // namespace pytracer::crashsafe
