#include "crashsafe/memory/frame_values.h"

#include "crashsafe/file/black_box.h"
#include "crashsafe/memory/reference_path.h"
#include "crashsafe/platform/large.h"
#include "crashsafe/python/python_objects.h"
#include "crashsafe/text/redact.h"
#include "crashsafe/torch/torch_objects.h"

#include <cstring>
#include <string_view>

namespace pytracer::crashsafe {
namespace {

using namespace blackbox;

constexpr uint32_t kFrames = 16, kLocals = 128, kItems = 8, kEntries = 64, kAttributes = 96, kGlobals = 512, kObjects = 8192, kLongestKey = 41;
constexpr uint32_t kLongestText = 120, kLongestFile = 512, kArenaShare = 4;

// In this order, each with room of its own: what conditions ask for most comes first.
enum class Pass : uint32_t { kVariables, kItems, kDeep };
constexpr uint32_t kRoom[] = {256, 96, 96};

// Static: too large for the alternate stack. One thread reports at a time.
struct Walk {
  ReferencePath path;
  Pass pass;
  uint32_t frame, looked_at, room;
  char text[kLongestFile];
};
PYTRACER_LARGE constinit Walk walk{};

bool is_due() {
  Pass of = walk.path.in_container() ? Pass::kItems : walk.path.below_attribute() ? Pass::kDeep : Pass::kVariables;
  return of == walk.pass;
}

// `password = 1234`, as in a command line.
bool is_secret() {
  uint32_t nbytes = walk.path.write_name(walk.text, kLongestText);
  memcpy(walk.text + nbytes, "=1", 3);
  return redact_words(walk.text, nbytes + 3).count != 0;
}

void write(HolderKind kind, uint64_t object, uint64_t value, LengthOf of = LengthOf::kNone) {
  CrashHeader& crash = *g_box.crash.data;
  if (!is_due() || is_secret()) return;
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
  uint64_t bits = 0;
  if (object == types.nothing) {
    write(HolderKind::kNothing, object, 0);
  } else if (type == types.real) {
    if (bits_of_real(object, bits)) write(HolderKind::kReal, object, bits);
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

// A key is data more often than a name: only words as code writes them, and numbers.
bool is_word(uint64_t key) {
  PythonText text{};
  char bytes[kLongestKey];
  if (type_of(key) == python_types().integer) return true;
  if (type_of(key) != python_types().text || !python_text(key, text) || text.kind != 1 || text.nbytes == 0 || text.nbytes > kLongestKey ||
      !read_bytes(bytes, text.data, text.nbytes))
    return false;
  for (uint32_t i = 0; i < text.nbytes; i++) {
    char letter = bytes[i];
    bool alphabetic = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || letter == '_';
    if (!alphabetic && !(i > 0 && letter >= '0' && letter <= '9')) return false;
  }
  return true;
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
    if (entry_of(table, i, key, value) && (kind == ReferencePath::kKey ? is_word(key) : !is_private(key))) look_down(kind, key, value);
}

void look_at_dict(uint64_t object) {
  uint64_t count = 0;
  Table table{};
  if (!length_of_dict(object, count)) return;
  write(HolderKind::kLength, object, count, LengthOf::kDict);
  bool named = walk.pass == Pass::kItems && !walk.path.full() && count <= kEntries;
  if (named && table_of_dict(object, table)) look_at_entries(table, kEntries, ReferencePath::kKey);
}

// Classes and modules, also those of other metaclasses, are left out: they refer to everything.
bool is_definition(uint64_t type) { return derives_from(type, python_types().type) || derives_from(type, python_types().module); }

void look_into(uint64_t object) {
  const PythonTypes& types = python_types();
  if (++walk.looked_at > kObjects) {
    g_box.crash.data->holders_truncated = 1;
    return;
  }
  uint64_t type = type_of(object), first = 0, count = 0;
  Table table{};
  if (type == 0 || type == types.text || write_plain(object, type)) return;
  if (items_of(object, first, count)) {
    write(HolderKind::kLength, object, count, type == types.list ? LengthOf::kList : LengthOf::kTuple);
    if (walk.pass == Pass::kItems && !walk.path.full()) look_at_items(first, count);
  } else if (type == types.dict) {
    look_at_dict(object);
  } else if (walk.path.outermost() || (walk.pass == Pass::kDeep && !walk.path.full())) {
    if (!is_definition(type) && table_of_attributes(object, type, table)) look_at_entries(table, kAttributes, ReferencePath::kAttribute);
  }
}

// By the path, as pytracer/_library_files.py does: of the packages the reader takes those for the program that it is started from.
enum class Of : uint32_t { kProgram, kPackage, kLibrary };

Of owner_of(const PythonFrame& frame) {
  uint32_t nbytes = frame.file_nbytes < kLongestFile ? frame.file_nbytes : kLongestFile;
  if (frame.file + nbytes > g_box.arena.items) return Of::kLibrary;
  memcpy(walk.text, g_box.arena.data + frame.file, nbytes);
  std::string_view file{walk.text, nbytes};
  size_t packages = file.find("-packages/");
  if (packages == file.npos) return file.find("/lib/python3.") != file.npos || file.starts_with("<frozen") ? Of::kLibrary : Of::kProgram;
  std::string_view package{file.data() + packages, file.size() - packages};
  return package.starts_with("-packages/torch/") || package.starts_with("-packages/pytracer/") ? Of::kLibrary : Of::kPackage;
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

uint32_t own_frames_of_thread() {
  const CrashHeader& crash = *g_box.crash.data;
  return crash.python_matched != 0 && crash.python_thread_count > 0 ? g_box.python_threads.data[0].frame_count : 0;
}

bool has_program() {
  for (uint32_t i = 0; i < own_frames_of_thread(); i++)
    if (owner_of(g_box.python_frames.data[i]) == Of::kProgram) return true;
  return false;
}

void look_at_frames(Pass pass, Of wanted) {
  walk.pass = pass;
  walk.room = kRoom[static_cast<uint32_t>(pass)];
  walk.looked_at = 0;
  uint32_t own = 0;
  for (walk.frame = 0; walk.frame < own_frames_of_thread() && own < kFrames; walk.frame++) {
    const PythonFrame& frame = g_box.python_frames.data[walk.frame];
    if (owner_of(frame) != wanted) continue;
    own++;
    look_at_variables(frame);
  }
}

}  // namespace

void write_values() noexcept {
  if (torch_offsets() == nullptr || python_objects() == nullptr || !torch_offsets()->values) return;
  memset(static_cast<void*>(&walk), 0, sizeof walk);
  Of wanted = has_program() ? Of::kProgram : Of::kPackage;
  for (Pass pass : {Pass::kVariables, Pass::kItems, Pass::kDeep}) look_at_frames(pass, wanted);
}

}  // namespace pytracer::crashsafe
